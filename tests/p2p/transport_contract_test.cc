// What every Transport promises: order, matching, memory, words.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

#define RZ_EXPECT_OK(...) EXPECT_EQ((__VA_ARGS__), absl::OkStatus())
#define RZ_ASSERT_OK(...) ASSERT_EQ((__VA_ARGS__), absl::OkStatus())

// Small ones may wait at their receiver, large ones wait in their block.
constexpr int kSmall = 16;
constexpr int kLarge = 50'000;

class TransportContract : public TransportSuite {
 protected:
  static absl::Status Send(Cluster& cluster, int from, int to, MessageKey key, const Buffer& block,
                           Ends& ends) {
    return cluster[from].Send(WorkerId(to), key, block.as<std::byte>(), ends.Next());
  }
  static absl::Status Post(Cluster& cluster, int at, int from, MessageKey key, Buffer& block,
                           Ends& ends) {
    return cluster[at].Post(WorkerId(from), key, block.as<std::byte>(), ends.Next());
  }
  static bool HasWords(Cluster& cluster) {
    const bool apart = cluster[0].LinkTo(WorkerId(1)).starts_with("ucx");
    return !apart && !cluster[0].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.empty();
  }
};

TEST_P(TransportContract, SaysWhoItIsAndWhatCarriesItsMessages) {
  Cluster cluster = Make(2);
  EXPECT_EQ(cluster[1].self(), WorkerId(1));
  EXPECT_EQ(cluster[1].workers(), 2);
  EXPECT_TRUE(cluster[0].status().ok());
  EXPECT_EQ(cluster[0].LinkTo(WorkerId(0)), "self");
  PassOne(cluster[0], cluster[1]);
  EXPECT_TRUE(Eventually([&] {
    return cluster[0].LinkTo(WorkerId(1)).find(GetParam().link) != std::string::npos;
  })) << cluster[0].LinkTo(WorkerId(1));
}

TEST_P(TransportContract, MemoryIsExhaustedAndComesBack) {
  constexpr size_t kBytes = 400;
  TransportOptions options = SmallOptions();
  options.sum_bytes = 2 * (AlignPayload(kBytes) + 64);
  Cluster cluster = Make(2, options);
  // At least two, as asked for; a decorator may have made room for its own.
  std::vector<Buffer> blocks;
  absl::StatusOr<Buffer> another = cluster[0].Allocate(kBytes, MemoryUse::kSums);
  for (; another.ok(); another = cluster[0].Allocate(kBytes, MemoryUse::kSums)) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(another->data()) % kPayloadAlignment, 0u);
    blocks.push_back(*std::move(another));
  }
  EXPECT_EQ(another.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(blocks.size(), 2u);
  EXPECT_LE(blocks.size(), 3u);
  blocks.pop_back();
  EXPECT_TRUE(cluster[0].Allocate(kBytes, MemoryUse::kSums).ok());
}

TEST_P(TransportContract, APayloadGoesFromBlockToBlock) {
  for (const int values : {1, kSmall, 200, 1000, kLarge}) {
    Cluster cluster = Make(2);
    const Buffer from = Filled(cluster[0], MemoryUse::kParameters, values, 7);
    Buffer to = Empty(cluster[1], values);
    Ends sent, arrived;
    RZ_ASSERT_OK(Post(cluster, 1, 0, {3, 42}, to, arrived));
    RZ_ASSERT_OK(Send(cluster, 0, 1, {3, 42}, from, sent));
    RZ_EXPECT_OK(arrived.Take());
    EXPECT_TRUE(Holds(to, 7)) << values;
    RZ_EXPECT_OK(sent.Take());
    EXPECT_TRUE(Eventually([&] { return cluster[0].undelivered().empty(); }));
    EXPECT_EQ(cluster[0].stats().messages_sent[3], 1u);
    EXPECT_EQ(cluster[0].stats().bytes_sent[3], values * sizeof(float));
  }
}

TEST_P(TransportContract, AMessageWaitsForItsBlock) {
  for (const int values : {kSmall, kLarge}) {
    Cluster cluster = Make(2);
    const Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 5);
    Ends sent, arrived, other;
    RZ_ASSERT_OK(Send(cluster, 0, 1, {0, 1}, from, sent));
    // Another channel is not held up, and shows that what came before it has been handled.
    const Buffer word = Filled(cluster[0], MemoryUse::kSums, kSmall, 0);
    Buffer place = Empty(cluster[1], kSmall);
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
    Buffer to = Empty(cluster[1], values);
    RZ_ASSERT_OK(Post(cluster, 1, 0, {0, 1}, to, arrived));
    RZ_ASSERT_OK(arrived.Take());
    EXPECT_TRUE(Holds(to, 5));
    RZ_EXPECT_OK(sent.Take());
  }
}

// Sizes at which transports change their ways; what is small must not overtake.
TEST_P(TransportContract, KeepsOrderInAChannel) {
  const std::vector<int> sizes = {1,    15,    1024,  1039,   1040, 1041,  1056,   112,     113,
                                  5000, 16384, 65537, 3,      16,   90000, 262144, 2,       40000,
                                  16,   16,    3000,  250000, 16,   16,    3000,   1 << 18, 100000};
  TransportOptions options = SmallOptions();
  options.parameter_bytes = options.sum_bytes = 8 << 20;
  Cluster cluster = Make(2, options);
  std::vector<Buffer> from, to;
  for (const int values : sizes) {
    const auto first = static_cast<float>(from.size());
    from.push_back(Filled(cluster[0], MemoryUse::kParameters, values, first));
    to.push_back(Empty(cluster[1], values));
  }
  Ends sent, arrived;
  const size_t half = sizes.size() / 2;  // are posted before they are sent
  for (size_t i = 0; i < half; ++i) RZ_ASSERT_OK(Post(cluster, 1, 0, {1, i}, to[i], arrived));
  for (size_t i = 0; i < from.size(); ++i) {
    RZ_ASSERT_OK(Send(cluster, 0, 1, {1, i}, from[i], sent));
  }
  for (size_t i = half; i < to.size(); ++i)
    RZ_ASSERT_OK(Post(cluster, 1, 0, {1, i}, to[i], arrived));
  for (size_t i = 0; i < to.size(); ++i) {
    RZ_ASSERT_OK(arrived.Take());
    RZ_ASSERT_OK(sent.Take());
  }
  for (size_t i = 0; i < to.size(); ++i) EXPECT_TRUE(Holds(to[i], static_cast<float>(i))) << i;
}

TEST_P(TransportContract, MemoryFromElsewhereIsRefused) {
  Cluster cluster = Make(2);
  std::vector<float> elsewhere(2 * kSmall);
  const std::span<float> block(elsewhere.data(), kSmall);
  Ends sent;
  const absl::Status status =
      cluster[0].Send(WorkerId(1), {0, 1}, std::as_bytes(block), sent.Next());
  EXPECT_THAT(status.ok() ? sent.Take() : status,  // a delayed one is refused later
              Fails(absl::StatusCode::kInvalidArgument, "bytes that are not of Allocate"));
}

TEST_P(TransportContract, SendsToItself) {
  for (const bool posted_first : {true, false}) {
    for (const int values : {kSmall, kLarge}) {
      Cluster cluster = Make(1);
      const Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 3);
      Buffer to = Empty(cluster[0], values);
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

TEST_P(TransportContract, ABlockIsTheSendersAgainOnceItHasLeft) {
  for (const int values : {kSmall, kLarge}) {
    Cluster cluster = Make(2);
    Buffer from = Filled(cluster[0], MemoryUse::kSums, values, 0);
    Buffer to = Empty(cluster[1], values);
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

TEST_P(TransportContract, OneBlockLeavesForManyAtOnce) {
  constexpr int kWorkers = 4;
  Cluster cluster = Make(kWorkers);
  const Buffer from = Filled(cluster[0], MemoryUse::kParameters, kLarge, 9);
  Ends sent, arrived;
  for (int w = 1; w < kWorkers; ++w) RZ_ASSERT_OK(Send(cluster, 0, w, {2, 0}, from, sent));
  std::vector<Buffer> to;
  for (int w = 1; w < kWorkers; ++w) {
    to.push_back(Empty(cluster[w], kLarge));
    RZ_ASSERT_OK(Post(cluster, w, 0, {2, 0}, to.back(), arrived));
  }
  for (int w = 1; w < kWorkers; ++w) {
    RZ_EXPECT_OK(arrived.Take());
    RZ_EXPECT_OK(sent.Take());
  }
  for (const Buffer& block : to) EXPECT_TRUE(Holds(block, 9));
}

TEST_P(TransportContract, SumsTravelAroundTheRingAndGrow) {
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

TEST_P(TransportContract, MismatchedKeysOrSizesFailBothAndNameBoth) {
  struct Case {
    uint64_t tag;  // what is expected in place of 222, and of `sent` values
    int values;
    int sent;
  };
  const Case cases[] = {{111, kSmall, kSmall},
                        {222, 2 * kSmall, kSmall},
                        {111, kLarge, kLarge},
                        {222, kSmall, kLarge}};
  const auto words = [&](uint64_t tag, int values) {
    return absl::StrCat("tag ", tag, ", ", values * sizeof(float) + GetParam().hidden_bytes,
                        " bytes");
  };
  for (const Case& each : cases) {
    for (const bool posted_first : {true, false}) {
      Cluster cluster = Make(2);
      const Buffer from = Filled(cluster[0], MemoryUse::kSums, each.sent, 0);
      Buffer to = Empty(cluster[1], each.values);
      Ends sent, arrived;
      BlockCall senders = PostEmpty(cluster[0], 1, {4, 9});
      if (posted_first) {
        RZ_ASSERT_OK(Post(cluster, 1, 0, {2, each.tag}, to, arrived));
      }
      RZ_ASSERT_OK(Send(cluster, 0, 1, {2, 222}, from, sent));
      if (!posted_first) {
        RZ_ASSERT_OK(Post(cluster, 1, 0, {2, each.tag}, to, arrived));
      }
      for (Ends* ends : {&arrived, &senders.ends}) {
        const absl::Status status = ends->Take();
        EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, words(222, each.sent)));
        EXPECT_THAT(status, Says(words(each.tag, each.values)));
      }
    }
  }
}

TEST_P(TransportContract, NobodySaysGoodbyeWithAnOpenPost) {
  Cluster cluster = Make(2);
  Buffer to = Empty(cluster[1], kSmall);
  Ends arrived;
  RZ_ASSERT_OK(Post(cluster, 1, 0, {6, 8}, to, arrived));
  EXPECT_THAT(cluster[1].Close(),
              Fails(absl::StatusCode::kFailedPrecondition, "(kind 6, tag 8) is still expected"));
  RZ_ASSERT_OK(cluster[0].Close());
  EXPECT_THAT(arrived.Take(),
              Fails(absl::StatusCode::kInternal,
                    "worker 0 said goodbye, but worker 1 expects a message: kind 6, tag 8"));
}

TEST_P(TransportContract, NobodySaysGoodbyeWithAMessageThatHasNoPost) {
  Cluster cluster = Make(2);
  if (cluster[0].name().starts_with("faulty")) GTEST_SKIP() << "it delays one channel by itself";
  const Buffer from = Filled(cluster[0], MemoryUse::kSums, kSmall, 1);
  Buffer to = Empty(cluster[1], kSmall);
  Ends sent, arrived;
  RZ_ASSERT_OK(Post(cluster, 1, 0, {7, 0}, to, arrived));
  RZ_ASSERT_OK(Send(cluster, 0, 1, {6, 8}, from, sent));
  RZ_ASSERT_OK(Send(cluster, 0, 1, {7, 0}, from, sent));
  RZ_ASSERT_OK(arrived.Take());
  EXPECT_THAT(cluster[1].Close(), Fails(absl::StatusCode::kFailedPrecondition,
                                        "(kind 6, tag 8) came and was never expected"));
}

// Where memory is shared a word is enough: what was written before it is there.
TEST_P(TransportContract, WordsTellOfSharedMemory) {
  std::atomic<int> came{0};
  Cluster cluster = Make(2);
  if (!HasWords(cluster)) {
    EXPECT_EQ(cluster[0].SendWord(WorkerId(1), {3, 0}).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(cluster[1].ExpectWord(WorkerId(0), {3, 0}, [](const absl::Status&) {}).code(),
              absl::StatusCode::kUnimplemented);
    return;
  }
  const Buffer block = Filled(cluster[0], MemoryUse::kSums, 1, 0);
  const auto offset =
      block.data() - cluster[0].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.data();
  constexpr int kWords = 700;  // more than a ring of words holds
  const auto expect = [&](int from, int end) {
    for (int i = from; i < end; ++i) {
      const MessageKey key = {3, static_cast<uint64_t>(i)};
      const auto arrival = [&came, i](const absl::Status& word) {
        RZ_EXPECT_OK(word);
        EXPECT_EQ(came.fetch_add(1), i);
      };
      RZ_ASSERT_OK(cluster[1].ExpectWord(WorkerId(0), key, arrival));
    }
  };
  expect(0, kWords / 2);  // half are expected before they are sent, half after
  for (int i = 0; i < kWords; ++i) {
    block.as<int>()[0] = i;
    RZ_ASSERT_OK(cluster[0].SendWord(WorkerId(1), {3, static_cast<uint64_t>(i)}));
  }
  expect(kWords / 2, kWords);
  ASSERT_TRUE(Eventually([&] { return came == kWords; }));
  const std::byte* const seen =
      cluster[1].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.data() + offset;
  EXPECT_EQ(*reinterpret_cast<const int*>(seen), kWords - 1);
  EXPECT_EQ(cluster[0].stats().messages_sent[3], uint64_t{kWords});
  EXPECT_EQ(cluster[0].stats().bytes_sent[3], 0u);
}

TEST_P(TransportContract, MismatchedWordsFailBothAndNameBoth) {
  Cluster cluster = Make(2);
  if (!HasWords(cluster)) GTEST_SKIP() << "it has no words";
  Ends word;
  BlockCall senders = PostEmpty(cluster[0], 1, {4, 9});
  RZ_ASSERT_OK(cluster[1].ExpectWord(WorkerId(0), {2, 8}, word.Next()));
  RZ_ASSERT_OK(cluster[0].SendWord(WorkerId(1), {2, 7}));
  for (Ends* ends : {&word, &senders.ends}) {
    const absl::Status status = ends->Take();
    EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, "kind 2, tag 7"));
    EXPECT_THAT(status, Says("kind 2, tag 8"));
  }
}

TEST_P(TransportContract, RefusesWhatMakesNoSense) {
  Cluster cluster = Make(2);
  if (cluster[0].name() == "faulty local") GTEST_SKIP() << "it finds out when the delay is over";
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  Buffer block = Filled(cluster[0], MemoryUse::kSums, kSmall, 0);
  Ends never;
  EXPECT_EQ(Send(cluster, 0, 2, {0, 0}, block, never).code(), kInvalid);
  EXPECT_EQ(Send(cluster, 0, 1, {kMaxMessageKinds, 0}, block, never).code(), kInvalid);
  EXPECT_EQ(Post(cluster, 0, -1, {0, 0}, block, never).code(), kInvalid);
  EXPECT_EQ(Post(cluster, 0, 1, {kMaxMessageKinds, 0}, block, never).code(), kInvalid);
  if (HasWords(cluster)) {
    EXPECT_EQ(cluster[0].SendWord(WorkerId(2), {0, 0}).code(), kInvalid);
    EXPECT_EQ(cluster[0].ExpectWord(WorkerId(-1), {0, 0}, never.Next()).code(), kInvalid);
  }
  RZ_EXPECT_OK(cluster[0].status());
  EXPECT_EQ(never.calls(), 0);
}

// Sizes, senders and moments at random; every worker relays what it gets.
TEST_P(TransportContract, ManyAtRandom) {
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
      to[w].push_back(Empty(cluster[w], values));
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

RINGZERO_FOR_ALL_TRANSPORTS(TransportContract);

}  // namespace
}  // namespace ringzero
