// What every Transport promises of messages from block to block.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/p2p/implementations.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

#define RZ_EXPECT_OK(...) EXPECT_EQ((__VA_ARGS__), absl::OkStatus())
#define RZ_ASSERT_OK(...) ASSERT_EQ((__VA_ARGS__), absl::OkStatus())

// Small ones may wait at their receiver, large ones wait in their block.
constexpr int kSmall = 16;
constexpr int kLarge = 50'000;

class BlockContract : public TransportSuite {
 protected:
  static absl::Status Send(Cluster& cluster, int from, int to, MessageKey key, const Buffer& block,
                           Ends& ends) {
    return cluster[from].Send(WorkerId(to), key, block.as<std::byte>(), ends.Next());
  }
  static absl::Status Post(Cluster& cluster, int at, int from, MessageKey key, Buffer& block,
                           Ends& ends) {
    return cluster[at].Post(WorkerId(from), key, block.as<std::byte>(), ends.Next());
  }
  static Buffer Empty(Cluster& cluster, int at, int values) {
    return Filled(cluster[at], MemoryUse::kSums, values, -1e6);
  }
  static bool Holds(const Buffer& block, float first) {
    const std::span<float> values = block.as<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != first + static_cast<float>(i)) return false;
    }
    return true;
  }
};

TEST_P(BlockContract, APayloadGoesFromBlockToBlock) {
  for (const int values : {1, kSmall, 200, 1000, kLarge}) {
    Cluster cluster = Make(2);
    const Buffer from = Filled(cluster[0], MemoryUse::kParameters, values, 7);
    Buffer to = Empty(cluster, 1, values);
    Ends sent, arrived;
    RZ_ASSERT_OK(Post(cluster, 1, 0, {3, 42}, to, arrived));
    RZ_ASSERT_OK(Send(cluster, 0, 1, {3, 42}, from, sent));
    RZ_EXPECT_OK(arrived.Take());
    EXPECT_TRUE(Holds(to, 7)) << values;
    RZ_EXPECT_OK(sent.Take());
    EXPECT_TRUE(Eventually([&] { return cluster[0].drained(); }));
    EXPECT_EQ(cluster[0].stats().messages_sent[3], 1u);
    EXPECT_EQ(cluster[0].stats().bytes_sent[3], values * sizeof(float));
  }
}

TEST_P(BlockContract, AMessageWaitsForItsBlock) {
  for (const int values : {kSmall, kLarge}) {
    Cluster cluster = Make(2);
    const Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 5);
    Ends sent, arrived, other;
    RZ_ASSERT_OK(Send(cluster, 0, 1, {0, 1}, from, sent));
    // Another channel is not held up, and shows that what came before it has been handled.
    const Buffer word = Filled(cluster[0], MemoryUse::kSums, kSmall, 0);
    Buffer place = Empty(cluster, 1, kSmall);
    RZ_ASSERT_OK(Post(cluster, 1, 0, {1, 0}, place, other));
    Ends left;
    RZ_ASSERT_OK(Send(cluster, 0, 1, {1, 0}, word, left));
    RZ_ASSERT_OK(other.Take());
    RZ_ASSERT_OK(left.Take());
    if (values == kLarge) {
      EXPECT_EQ(sent.calls(), 0);
      ASSERT_EQ(cluster[0].undelivered().size(), 1u);
      EXPECT_EQ(cluster[0].undelivered()[0].key, (MessageKey{0, 1}));
    }
    Buffer to = Empty(cluster, 1, values);
    RZ_ASSERT_OK(Post(cluster, 1, 0, {0, 1}, to, arrived));
    RZ_ASSERT_OK(arrived.Take());
    EXPECT_TRUE(Holds(to, 5));
    RZ_EXPECT_OK(sent.Take());
  }
}

// Small and large ones in turns: what is small must not overtake.
TEST_P(BlockContract, KeepsOrderInAChannel) {
  constexpr int kMessages = 60;
  Cluster cluster = Make(2);
  std::vector<Buffer> from, to;
  for (int i = 0; i < kMessages; ++i) {
    const int values = i % 3 == 0 ? 3000 : kSmall;
    from.push_back(Filled(cluster[0], MemoryUse::kParameters, values, static_cast<float>(i)));
    to.push_back(Empty(cluster, 1, values));
  }
  Ends sent, arrived;
  const auto post = [&](int i) {
    RZ_ASSERT_OK(cluster[1].Post(WorkerId(0), {1, static_cast<uint64_t>(i)},
                                 to[static_cast<size_t>(i)].as<std::byte>(), arrived.Next()));
  };
  for (int i = 0; i < kMessages / 2; ++i) post(i);  // half are posted before they are sent
  for (int i = 0; i < kMessages; ++i) {
    RZ_ASSERT_OK(
        Send(cluster, 0, 1, {1, static_cast<uint64_t>(i)}, from[static_cast<size_t>(i)], sent));
  }
  for (int i = kMessages / 2; i < kMessages; ++i) post(i);
  for (int i = 0; i < kMessages; ++i) {
    RZ_ASSERT_OK(arrived.Take());
    RZ_ASSERT_OK(sent.Take());
  }
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(Holds(to[static_cast<size_t>(i)], static_cast<float>(i))) << i;
  }
}

TEST_P(BlockContract, MemoryFromElsewhereIsRefused) {
  Cluster cluster = Make(2);
  std::vector<float> elsewhere(2 * kSmall);
  const std::span<float> block(elsewhere.data(), kSmall);
  Ends sent;
  const absl::Status status =
      cluster[0].Send(WorkerId(1), {0, 1}, std::as_bytes(block), sent.Next());
  EXPECT_THAT(status.ok() ? sent.Take() : status,  // a delayed one is refused later
              Fails(absl::StatusCode::kInvalidArgument, "bytes that are not of Allocate"));
}

TEST_P(BlockContract, SendsToItself) {
  for (const bool posted_first : {true, false}) {
    for (const int values : {kSmall, kLarge}) {
      Cluster cluster = Make(1);
      const Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 3);
      Buffer to = Empty(cluster, 0, values);
      Ends sent, arrived;
      if (posted_first) {
        RZ_ASSERT_OK(Post(cluster, 0, 0, {0, 1}, to, arrived));
      }
      RZ_ASSERT_OK(Send(cluster, 0, 0, {0, 1}, from, sent));
      if (!posted_first) {
        RZ_ASSERT_OK(Post(cluster, 0, 0, {0, 1}, to, arrived));
      }
      RZ_EXPECT_OK(arrived.Take());
      RZ_EXPECT_OK(sent.Take());
      EXPECT_TRUE(Holds(to, 3));
    }
  }
}

TEST_P(BlockContract, ABlockIsTheSendersAgainOnceItHasLeft) {
  for (const int values : {kSmall, kLarge}) {
    Cluster cluster = Make(2);
    Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 0);
    Buffer to = Empty(cluster, 1, values);
    Ends sent, arrived;
    for (int round = 0; round < 20; ++round) {
      const auto tag = static_cast<uint64_t>(round);
      for (size_t i = 0; i < from.as<float>().size(); ++i) {
        from.as<float>()[i] = static_cast<float>(round) + static_cast<float>(i);
      }
      RZ_ASSERT_OK(Post(cluster, 1, 0, {0, tag}, to, arrived));
      RZ_ASSERT_OK(Send(cluster, 0, 1, {0, tag}, from, sent));
      RZ_ASSERT_OK(sent.Take());
      std::ranges::fill(from.as<float>(), -1.0f);
      RZ_ASSERT_OK(arrived.Take());
      ASSERT_TRUE(Holds(to, static_cast<float>(round))) << round;
    }
  }
}

TEST_P(BlockContract, OneBlockLeavesForManyAtOnce) {
  constexpr int kWorkers = 4;
  Cluster cluster = Make(kWorkers);
  const Buffer from = Filled(cluster[0], MemoryUse::kParameters, kLarge, 9);
  Ends sent, arrived;
  for (int w = 1; w < kWorkers; ++w) RZ_ASSERT_OK(Send(cluster, 0, w, {2, 0}, from, sent));
  std::vector<Buffer> to;
  for (int w = 1; w < kWorkers; ++w) {
    to.push_back(Empty(cluster, w, kLarge));
    RZ_ASSERT_OK(Post(cluster, w, 0, {2, 0}, to.back(), arrived));
  }
  for (int w = 1; w < kWorkers; ++w) {
    RZ_EXPECT_OK(arrived.Take());
    RZ_EXPECT_OK(sent.Take());
  }
  for (const Buffer& block : to) EXPECT_TRUE(Holds(block, 9));
}

TEST_P(BlockContract, SumsTravelAroundTheRingAndGrow) {
  constexpr int kWorkers = 4;
  for (const int values : {kSmall, 20'000}) {
    Cluster cluster = Make(kWorkers);
    std::vector<Buffer> blocks;
    for (int w = 0; w < kWorkers; ++w) {
      blocks.push_back(Filled(cluster[w], MemoryUse::kSums, values, 0));
    }
    for (uint64_t lap = 0; lap < 5; ++lap) {
      for (int w = 0; w < kWorkers; ++w) {
        const int next = (w + 1) % kWorkers;
        Ends sent, arrived;
        for (float& value : blocks[w].as<float>()) value += 1;
        RZ_ASSERT_OK(Post(cluster, next, w, {5, lap}, blocks[next], arrived));
        RZ_ASSERT_OK(Send(cluster, w, next, {5, lap}, blocks[w], sent));
        RZ_ASSERT_OK(arrived.Take());
        RZ_ASSERT_OK(sent.Take());
      }
    }
    EXPECT_TRUE(Holds(blocks[0], 5 * kWorkers));
  }
}

TEST_P(BlockContract, MismatchedKeysOrSizesFailBothAndNameBoth) {
  for (const bool size_differs : {false, true}) {
    for (const bool posted_first : {true, false}) {
      Cluster cluster = Make(2);
      const Buffer from = Filled(cluster[0], MemoryUse::kSums, kSmall, 0);
      Buffer to = Empty(cluster, 1, size_differs ? 2 * kSmall : kSmall);
      Buffer back = Empty(cluster, 0, kSmall);
      Ends sent, arrived, senders;
      RZ_ASSERT_OK(Post(cluster, 0, 1, {4, 9}, back, senders));
      const MessageKey expected = {2, size_differs ? 222u : 111u};
      if (posted_first) {
        RZ_ASSERT_OK(Post(cluster, 1, 0, expected, to, arrived));
      }
      RZ_ASSERT_OK(Send(cluster, 0, 1, {2, 222}, from, sent));
      if (!posted_first) {
        RZ_ASSERT_OK(Post(cluster, 1, 0, expected, to, arrived));
      }
      for (Ends* each : {&arrived, &senders}) {
        const absl::Status status = each->Take();
        const size_t hidden = GetParam().hidden_bytes;
        if (size_differs) {
          EXPECT_THAT(status, Fails(absl::StatusCode::kInternal,
                                    absl::StrCat(64 + hidden, " bytes; worker 1 expected")));
          EXPECT_THAT(status, Says(absl::StrCat(128 + hidden, " bytes")));
        } else {
          EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, "tag 111"));
          EXPECT_THAT(status, Says("tag 222"));
        }
      }
    }
  }
}

TEST_P(BlockContract, AnAbortEndsEachCallOnce) {
  Cluster cluster = Make(2);
  const Buffer from = Filled(cluster[0], MemoryUse::kSums, kLarge, 0);
  Buffer to = Empty(cluster, 0, kSmall);
  Ends sent, arrived;
  RZ_ASSERT_OK(Send(cluster, 0, 1, {0, 0}, from, sent));
  RZ_ASSERT_OK(Post(cluster, 0, 1, {0, 0}, to, arrived));
  cluster[1].Abort(absl::DataLossError("it is enough"));
  for (Ends* each : {&sent, &arrived}) {
    EXPECT_THAT(each->Take(), Fails(absl::StatusCode::kDataLoss, "it is enough"));
  }
  cluster.Destroy(1);
  cluster.Destroy(0);
  EXPECT_EQ(sent.calls(), 1);
  EXPECT_EQ(arrived.calls(), 1);
}

TEST_P(BlockContract, AWorkerThatDiesEndsWhatWaitsForIt) {
  Cluster cluster = Make(2);
  const Buffer from = Filled(cluster[0], MemoryUse::kSums, kLarge, 0);
  Buffer to = Empty(cluster, 0, kLarge);
  Ends sent, arrived;
  RZ_ASSERT_OK(Send(cluster, 0, 1, {0, 0}, from, sent));
  RZ_ASSERT_OK(Post(cluster, 0, 1, {0, 0}, to, arrived));
  cluster.Destroy(1);
  for (Ends* each : {&sent, &arrived}) {
    EXPECT_THAT(each->Take(), Fails(absl::StatusCode::kUnavailable, "worker 1"));
  }
}

TEST_P(BlockContract, WhatWasSentArrivesBeforeAGoodbye) {
  for (const int values : {kSmall, kLarge}) {
    Cluster cluster = Make(2);
    const Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 1);
    Buffer to = Empty(cluster, 1, values);
    Ends sent, arrived;
    RZ_ASSERT_OK(Send(cluster, 0, 1, {0, 0}, from, sent));
    RZ_ASSERT_OK(cluster[0].Close());
    RZ_ASSERT_OK(Post(cluster, 1, 0, {0, 0}, to, arrived));
    RZ_EXPECT_OK(arrived.Take());
    RZ_EXPECT_OK(sent.Take());
    EXPECT_TRUE(Holds(to, 1));
    RZ_EXPECT_OK(cluster[1].Close());
  }
}

TEST_P(BlockContract, NobodySaysGoodbyeWithAnOpenPost) {
  Cluster cluster = Make(2);
  Buffer to = Empty(cluster, 1, kSmall);
  Ends arrived;
  RZ_ASSERT_OK(Post(cluster, 1, 0, {6, 8}, to, arrived));
  EXPECT_THAT(cluster[1].Close(),
              Fails(absl::StatusCode::kFailedPrecondition, "(kind 6, tag 8) is still expected"));
  RZ_ASSERT_OK(cluster[0].Close());
  EXPECT_THAT(arrived.Take(),
              Fails(absl::StatusCode::kInternal, "worker 0 said goodbye, but worker 1 expects"));
}

TEST_P(BlockContract, NobodySaysGoodbyeWithAMessageThatHasNoPost) {
  Cluster cluster = Make(2);
  if (cluster[0].name().starts_with("faulty")) GTEST_SKIP() << "it delays one channel by itself";
  const Buffer from = Filled(cluster[0], MemoryUse::kSums, kSmall, 1);
  Buffer to = Empty(cluster, 1, kSmall);
  Ends sent, arrived;
  RZ_ASSERT_OK(Post(cluster, 1, 0, {7, 0}, to, arrived));
  RZ_ASSERT_OK(Send(cluster, 0, 1, {6, 8}, from, sent));
  RZ_ASSERT_OK(Send(cluster, 0, 1, {7, 0}, from, sent));
  RZ_ASSERT_OK(arrived.Take());
  EXPECT_THAT(cluster[1].Close(), Fails(absl::StatusCode::kFailedPrecondition,
                                        "(kind 6, tag 8) came and was never expected"));
}

// Sizes, senders and moments at random; every worker relays what it gets.
TEST_P(BlockContract, ManyAtRandom) {
  constexpr int kWorkers = 3;
  constexpr int kMessages = 40;
  TransportOptions options = SmallOptions();
  options.parameter_bytes = options.sum_bytes = 8 << 20;
  Cluster cluster = Make(kWorkers, options);
  std::mt19937 random(7);
  std::vector<int> sizes;
  for (int i = 0; i < kMessages; ++i) {
    sizes.push_back(static_cast<int>(random() % (i % 4 == 0 ? 30'000 : 300)) + 1);
  }
  std::vector<std::vector<Buffer>> from(kWorkers), to(kWorkers);
  Ends sent, arrived;
  for (int w = 0; w < kWorkers; ++w) {
    for (const int values : sizes) {
      from[w].push_back(
          Filled(cluster[w], MemoryUse::kParameters, values, static_cast<float>(w + values)));
      to[w].push_back(Empty(cluster, w, values));
    }
  }
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      std::mt19937 mine(static_cast<uint32_t>(w));
      const int left = (w + kWorkers - 1) % kWorkers, right = (w + 1) % kWorkers;
      std::vector<int> posted(2, 0), given(2, 0);  // by kind: messages take turns
      for (int steps = 0; steps < 2 * kMessages;) {
        const int kind = static_cast<int>(mine() % 2);
        int& next = (mine() % 2 == 0 ? posted : given)[static_cast<size_t>(kind)];
        const bool posts = &next == &posted[static_cast<size_t>(kind)];
        const int message = 2 * next + kind;
        if (message >= kMessages) continue;
        const MessageKey key = {static_cast<uint8_t>(kind), static_cast<uint64_t>(next)};
        const auto m = static_cast<size_t>(message);
        const absl::Status status = posts ? Post(cluster, w, left, key, to[w][m], arrived)
                                          : Send(cluster, w, right, key, from[w][m], sent);
        RZ_EXPECT_OK(status);
        ++next;
        ++steps;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kWorkers * kMessages; ++i) {
    RZ_ASSERT_OK(arrived.Take());
    RZ_ASSERT_OK(sent.Take());
  }
  for (int w = 0; w < kWorkers; ++w) {
    const int left = (w + kWorkers - 1) % kWorkers;
    for (size_t m = 0; m < sizes.size(); ++m) {
      EXPECT_TRUE(Holds(to[w][m], static_cast<float>(left + sizes[m]))) << w << " " << m;
    }
  }
}

RINGZERO_FOR_ALL_TRANSPORTS(BlockContract);

}  // namespace
}  // namespace ringzero
