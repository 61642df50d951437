// What every Transport promises: order, matching, credit, holders, memory. Joined by one factory
// line.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/p2p/implementations.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

constexpr int kValues = 100;
constexpr size_t kBytes = kValues * sizeof(float);

class TransportContract : public TransportSuite {};

TEST_P(TransportContract, SaysWhoItIs) {
  Cluster cluster = Make(3);
  EXPECT_EQ(cluster[2].self(), WorkerId(2));
  EXPECT_EQ(cluster[2].workers(), 3);
  EXPECT_TRUE(cluster[0].status().ok());
}

TEST_P(TransportContract, SharesWithoutACopyAndCounts) {
  Cluster cluster = Make(2);
  SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, kValues, 7).Seal();
  Waiter<SharedBuffer> copy;
  ExpectShared(cluster[1], 0, {3, 42}, copy, kBytes);
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {3, 42}, version).ok());
  const SharedBuffer got = copy.Take();
  ASSERT_EQ(got.size(), kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data()) % kPayloadAlignment, 0u);
  EXPECT_EQ(got.as<float>()[0], 7);
  EXPECT_EQ(got.as<float>()[kValues - 1], 7 + kValues - 1);
  const TransportStats stats = cluster[0].stats();
  EXPECT_EQ(stats.bytes_sent[3], kBytes);
  EXPECT_EQ(stats.messages_sent[3], 1u);
  EXPECT_EQ(stats.bytes_copied, 0u);
  EXPECT_EQ(cluster[1].stats().bytes_copied, 0u);
}

TEST_P(TransportContract, GivesTheSamePhysicalBytes) {
  if (!same_memory()) GTEST_SKIP() << "it delivers copies";
  Cluster cluster = Make(2);
  // The owner keeps looking at its block while the other writes: only shared memory shows that.
  SharedBuffer sum = Filled(cluster[0], MemoryUse::kSums, kValues, 1).Seal();
  const float* bytes = sum.as<float>().data();
  RZ_ASSIGN(Buffer owned, std::move(sum).Unseal());
  Waiter<Buffer> there;
  Waiter<Buffer> back;
  ExpectOwned(cluster[1], 0, {0, 1}, there, kBytes);
  ExpectOwned(cluster[0], 1, {0, 2}, back, kBytes);
  ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, 1}, std::move(owned)).ok());
  Buffer got = there.Take();
  ASSERT_TRUE(got);
  got.as<float>()[5] = 1234;
  ASSERT_TRUE(cluster[1].Give(WorkerId(0), {0, 2}, std::move(got)).ok());
  const Buffer returned = back.Take();
  ASSERT_TRUE(returned);
  EXPECT_EQ(returned.as<float>().data(), bytes);
  EXPECT_EQ(bytes[5], 1234);
}

TEST_P(TransportContract, KeepsOrderInAChannel) {
  TransportOptions options = SmallOptions();
  options.slots = {3};
  Cluster cluster = Make(2, options);
  std::vector<Waiter<Buffer>> waiters(50);
  for (int i = 0; i < 50; ++i) {  // half are expected before they are sent, half after
    const MessageKey key = {1, static_cast<uint64_t>(i)};
    if (i < 25) {
      ExpectOwned(cluster[1], 0, key, waiters[i]);
    }
    Give(cluster[0], 1, key, i);
  }
  for (int i = 25; i < 50; ++i) {
    const MessageKey key = {1, static_cast<uint64_t>(i)};
    ExpectOwned(cluster[1], 0, key, waiters[i]);
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(waiters[i].Take().as<float>()[0], i);
}

TEST_P(TransportContract, HasNoOrderBetweenChannels) {
  Cluster cluster = Make(2);
  Waiter<Buffer> first;
  Waiter<Buffer> second;
  for (uint8_t kind : {1, 2}) {
    Buffer sum = Filled(cluster[0], MemoryUse::kSums, 16, kind);
    ASSERT_TRUE(cluster[0].Give(WorkerId(1), {kind, 0}, std::move(sum)).ok());
  }
  ExpectOwned(cluster[1], 0, {2, 0}, second);
  EXPECT_EQ(second.Take().as<float>()[0], 2);
  ExpectOwned(cluster[1], 0, {1, 0}, first);
  EXPECT_EQ(first.Take().as<float>()[0], 1);
}

// Where memory is shared a word is enough: what was written before it is there.
TEST_P(TransportContract, WordsTakeNoCreditAndTellOfSharedMemory) {
  std::atomic<int> came{0};
  Cluster cluster = Make(2);
  if (cluster[0].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.empty()) {
    EXPECT_EQ(cluster[0].SendWord(WorkerId(1), {3, 0}).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(cluster[1].ExpectWord(WorkerId(0), {3, 0}, [](const absl::Status&) {}).code(),
              absl::StatusCode::kUnimplemented);
    return;
  }
  RZ_ASSIGN(const Buffer block, cluster[0].Allocate(kBytes, MemoryUse::kSums));
  const auto offset =
      block.data() - cluster[0].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.data();
  constexpr int kWords = 700;  // more than there are slots, and than a ring of words holds
  const auto expect = [&](int from, int end) {
    for (int i = from; i < end; ++i) {
      const MessageKey key = {3, static_cast<uint64_t>(i)};
      const auto arrival = [&came, i](const absl::Status& word) {
        EXPECT_EQ(word, absl::OkStatus());
        EXPECT_EQ(came.fetch_add(1), i);
      };
      ASSERT_TRUE(cluster[1].ExpectWord(WorkerId(0), key, arrival).ok());
    }
  };
  expect(0, kWords / 2);  // half are expected before they are sent, half after
  for (int i = 0; i < kWords; ++i) {
    block.as<int>()[0] = i;
    ASSERT_TRUE(cluster[0].SendWord(WorkerId(1), {3, static_cast<uint64_t>(i)}).ok());
  }
  expect(kWords / 2, kWords);
  ASSERT_TRUE(Eventually([&] { return came == kWords; }));
  const std::byte* const seen =
      cluster[1].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.data() + offset;
  EXPECT_EQ(*reinterpret_cast<const int*>(seen), kWords - 1);
  EXPECT_EQ(cluster[0].stats().messages_sent[3], uint64_t{kWords});
  EXPECT_EQ(cluster[0].stats().bytes_sent[3], 0u);
}

TEST_P(TransportContract, AWordInPlaceOfAMessageFailsBoth) {
  Cluster cluster = Make(2);
  if (cluster[0].MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.empty()) {
    GTEST_SKIP() << "it has no words";
  }
  Waiter<Buffer> sum;
  ExpectOwned(cluster[1], 0, {2, 7}, sum);
  ASSERT_TRUE(cluster[0].SendWord(WorkerId(1), {2, 7}).ok());
  EXPECT_THAT(sum.TakeResult().status(), Fails(absl::StatusCode::kInternal, "a word"));
}

TEST_P(TransportContract, SendsToItself) {
  Cluster cluster = Make(1);
  for (uint64_t i = 0; i < 5; ++i) {
    Waiter<Buffer> waiter;
    ExpectOwned(cluster[0], 0, {0, i}, waiter);
    Give(cluster[0], 0, {0, i}, i);
    EXPECT_EQ(waiter.Take().as<float>()[0], i);
  }
}

TEST_P(TransportContract, MismatchedKeysFailBothAndNameBoth) {
  Cluster cluster = Make(2);
  Waiter<Buffer> sums;
  Waiter<Buffer> senders;
  ExpectOwned(cluster[0], 1, {4, 9}, senders);
  ExpectOwned(cluster[1], 0, {2, 111}, sums);
  Give(cluster[0], 1, {2, 222}, 0);
  for (Waiter<Buffer>* waiter : {&sums, &senders}) {
    const absl::Status status = waiter->TakeResult().status();
    EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, "tag 111"));
    EXPECT_THAT(status, Says("tag 222"));
  }
}

TEST_P(TransportContract, MismatchedSizeOrOwnershipFails) {
  for (const bool size_differs : {true, false}) {
    Cluster cluster = Make(2);
    Waiter<SharedBuffer> copy;
    const size_t expected = size_differs ? 128 : 64;
    ExpectShared(cluster[1], 0, {2, 1}, copy, expected);
    Buffer sum = Filled(cluster[0], MemoryUse::kSums, 16, 0);
    if (size_differs) {
      ASSERT_TRUE(cluster[0].Share(WorkerId(1), {2, 1}, std::move(sum).Seal()).ok());
    } else {
      ASSERT_TRUE(cluster[0].Give(WorkerId(1), {2, 1}, std::move(sum)).ok());
    }
    const absl::Status status = copy.TakeResult().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    const size_t sent = 64 + GetParam().hidden_bytes;
    const std::string word =
        absl::StrCat(sent, size_differs ? " bytes shared; worker 1 expected" : " bytes owned");
    EXPECT_THAT(status, Says(word));
  }
}

TEST_P(TransportContract, AMessageWithoutCreditWaitsForADroppedHandle) {
  Cluster cluster = Make(2);  // 2 slots
  std::vector<Waiter<Buffer>> waiters(3);
  for (uint64_t i = 0; i < 3; ++i) {
    ExpectOwned(cluster[1], 0, {0, i}, waiters[i]);
    Give(cluster[0], 1, {0, i}, i);
  }
  const Buffer first = waiters[0].Take();
  Buffer second = waiters[1].Take();
  // Another channel is not held up, and shows that everything before it has been handled.
  Waiter<Buffer> other;
  ExpectOwned(cluster[1], 0, {1, 0}, other);
  Give(cluster[0], 1, {1, 0}, 0);
  other.Take();
  EXPECT_EQ(waiters[2].calls(), 0);
  EXPECT_EQ(cluster[0].stats().messages_sent[0], 2u);
  EXPECT_FALSE(cluster[0].drained());
  second.Reset();
  EXPECT_EQ(waiters[2].Take().as<float>()[0], 2);
  EXPECT_TRUE(cluster[0].drained());
}

TEST_P(TransportContract, ASlotOfASharedHandleIsFreeWithItsLastCopy) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  Cluster cluster = Make(2, options);
  std::vector<Waiter<SharedBuffer>> waiters(2);
  SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, 16, 0).Seal();
  for (uint64_t i = 0; i < 2; ++i) {
    ExpectShared(cluster[1], 0, {0, i}, waiters[i]);
    ASSERT_TRUE(cluster[0].Share(WorkerId(1), {0, i}, version).ok());
  }
  SharedBuffer copy = waiters[0].Take();
  SharedBuffer another = copy;
  copy.Reset();
  EXPECT_EQ(waiters[1].calls(), 0);
  another.Reset();
  waiters[1].Take();
}

TEST_P(TransportContract, ARelayFreesItsSlotWhenTheNextWorkerHasRoom) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  Cluster cluster = Make(3, options);
  std::vector<Waiter<Buffer>> at1(3);
  std::vector<Waiter<Buffer>> at2(3);
  for (uint64_t i = 0; i < 3; ++i) {
    ExpectOwned(cluster[1], 0, {0, i}, at1[i]);
    ExpectOwned(cluster[2], 1, {0, i}, at2[i]);
    Give(cluster[0], 1, {0, i}, i);
  }
  ASSERT_TRUE(cluster[1].Give(WorkerId(2), {0, 0}, at1[0].Take()).ok());
  Buffer held = at2[0].Take();  // worker 2's only slot
  ASSERT_TRUE(cluster[1].Give(WorkerId(2), {0, 1}, at1[1].Take()).ok());
  // Message 1 waits at worker 1 and keeps its slot there, so message 2 stays at worker 0.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(at2[1].calls(), 0);
  EXPECT_EQ(at1[2].calls(), 0);
  held.Reset();
  EXPECT_EQ(at2[1].Take().as<float>()[0], 1);
  EXPECT_EQ(at1[2].Take().as<float>()[0], 2);
}

TEST_P(TransportContract, RelaysSharedAroundTheRing) {
  constexpr int kWorkers = 4;
  Cluster cluster = Make(kWorkers);
  const SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, kValues, 3).Seal();
  std::vector<Waiter<SharedBuffer>> waiters(kWorkers);
  std::vector<SharedBuffer> copies(kWorkers);
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {0, 1}, version).ok());
  for (int w = 1; w < kWorkers; ++w) {
    ExpectShared(cluster[w], w - 1, {0, 1}, waiters[w], kBytes);
    copies[w] = waiters[w].Take();
    ASSERT_TRUE(copies[w]);
    EXPECT_EQ(copies[w].as<float>()[9], 12);
    if (w + 1 < kWorkers) {
      ASSERT_TRUE(cluster[w].Share(WorkerId(w + 1), {0, 1}, copies[w]).ok());
    }
    EXPECT_EQ(cluster[w].stats().bytes_copied, 0u);
  }
  // The owner's and one per worker, who all hold one block; or each its own.
  const int holders = same_memory() ? kWorkers : 1;
  EXPECT_TRUE(HoldsOnceItHasLeft([&] { return version.holders() == holders; }));
  EXPECT_TRUE(HoldsOnceItHasLeft([&] { return copies[2].holders() == holders; }));
}

TEST_P(TransportContract, SumsTravelAroundTheRingAndGrow) {
  constexpr int kWorkers = 4;
  Cluster cluster = Make(kWorkers);
  Buffer sum = Filled(cluster[0], MemoryUse::kSums, kValues, 0);
  for (int lap = 0; lap < 3; ++lap) {
    for (int w = 0; w < kWorkers; ++w) {
      for (float& value : sum.as<float>()) value += 1;
      const int next = (w + 1) % kWorkers;
      Waiter<Buffer> waiter;
      const MessageKey key = {5, static_cast<uint64_t>(lap)};
      ExpectOwned(cluster[next], w, key, waiter, kBytes);
      ASSERT_TRUE(cluster[w].Give(WorkerId(next), key, std::move(sum)).ok());
      sum = waiter.Take();
      ASSERT_TRUE(sum);
    }
  }
  for (int i = 0; i < kValues; ++i) EXPECT_EQ(sum.as<float>()[i], i + 12);
}

TEST_P(TransportContract, UnsealOnlyWithoutReadersAnywhere) {
  if (!same_memory()) GTEST_SKIP() << "it delivers copies";
  Cluster cluster = Make(2);
  SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, kValues, 0).Seal();
  EXPECT_EQ(version.holders(), 1);
  Waiter<SharedBuffer> copy;
  ExpectShared(cluster[1], 0, {0, 0}, copy, kBytes);
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {0, 0}, version).ok());
  EXPECT_EQ(std::move(version).Unseal().status().code(), absl::StatusCode::kFailedPrecondition);
  SharedBuffer reader = copy.Take();
  EXPECT_EQ(version.holders(), 2);
  EXPECT_EQ(reader.holders(), 2);
  EXPECT_EQ(std::move(reader).Unseal().status().code(), absl::StatusCode::kFailedPrecondition);
  SharedBuffer second = reader;
  EXPECT_EQ(reader.holders(), 3);
  EXPECT_EQ(version.holders(), 2);  // from outside, a worker is one holder
  second.Reset();
  reader.Reset();
  ASSERT_EQ(version.holders(), 1);
  EXPECT_TRUE(std::move(version).Unseal().ok());
}

// Where payload is copied, the sender's block is its own again, and readers elsewhere hold nothing.
TEST_P(TransportContract, ACopyFreesItsOriginal) {
  if (same_memory()) GTEST_SKIP() << "it delivers the same memory";
  TransportOptions options = SmallOptions();
  options.sum_bytes = AlignPayload(kBytes) + 64;
  Cluster cluster = Make(2, options);
  for (uint64_t i = 0; i < 2; ++i) {
    Waiter<Buffer> waiter;
    ExpectOwned(cluster[1], 0, {0, i}, waiter, kBytes);
    Give(cluster[0], 1, {0, i}, i, kValues);
    const Buffer there = waiter.Take();
    EXPECT_EQ(there.as<float>()[1], i + 1);
    EXPECT_TRUE(Eventually([&] { return cluster[0].Allocate(kBytes, MemoryUse::kSums).ok(); }));
  }
  SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, kValues, 0).Seal();
  Waiter<SharedBuffer> copy;
  ExpectShared(cluster[1], 0, {1, 0}, copy, kBytes);
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, 0}, version).ok());
  const SharedBuffer reader = copy.Take();
  EXPECT_TRUE(Eventually([&] { return version.holders() == 1; }));
  EXPECT_TRUE(std::move(version).Unseal().ok());
  EXPECT_EQ(reader.holders(), 1);
}

TEST_P(TransportContract, AGivenBufferHasOneHolderAtOnce) {
  Cluster cluster = Make(3);
  for (uint64_t i = 0; i < 200; ++i) {
    Waiter<Buffer> at1;
    Waiter<Buffer> at2;
    ExpectOwned(cluster[1], 0, {0, i}, at1);
    ExpectOwned(cluster[2], 1, {0, i}, at2);
    Give(cluster[0], 1, {0, i}, i);
    ASSERT_TRUE(cluster[1].Give(WorkerId(2), {0, i}, at1.Take()).ok());
    SharedBuffer sealed = at2.Take().Seal();
    ASSERT_EQ(sealed.holders(), 1);
    ASSERT_TRUE(std::move(sealed).Unseal().ok());
  }
}

TEST_P(TransportContract, MemoryIsExhaustedAndComesBackFromAnotherWorker) {
  TransportOptions options = SmallOptions();
  options.sum_bytes = 2 * (AlignPayload(kBytes) + 64);
  options.received_sum_bytes = AlignPayload(kBytes) + 64;
  Cluster cluster = Make(2, options);
  Buffer first = Filled(cluster[0], MemoryUse::kSums, kValues, 1);
  // At least one more, as asked for; a decorator may have made room for its own.
  std::vector<Buffer> others;
  absl::StatusOr<Buffer> another = cluster[0].Allocate(kBytes, MemoryUse::kSums);
  for (; another.ok(); another = cluster[0].Allocate(kBytes, MemoryUse::kSums)) {
    others.push_back(*std::move(another));
  }
  EXPECT_EQ(another.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(others.size(), 1u);
  EXPECT_LE(others.size(), 2u);
  Waiter<Buffer> given;
  ExpectOwned(cluster[1], 0, {0, 0}, given, kBytes);
  ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, 0}, std::move(first)).ok());
  Buffer away = given.Take();
  if (same_memory()) {
    EXPECT_FALSE(cluster[0].Allocate(kBytes, MemoryUse::kSums).ok());
  }
  away.Reset();
  EXPECT_TRUE(
      HoldsOnceItHasLeft([&] { return cluster[0].Allocate(kBytes, MemoryUse::kSums).ok(); }));
}

TEST_P(TransportContract, ANumberHasOneBlock) {
  TransportOptions options = SmallOptions();
  options.sum_bytes = 4 * (AlignPayload(kBytes) + 64);
  Cluster cluster = Make(2, options);
  const auto allocate = [&] { return cluster[0].AllocateNumbered(7, kBytes); };
  absl::StatusOr<Buffer> first = allocate(), other = cluster[0].AllocateNumbered(8, kBytes);
  ASSERT_TRUE(first.ok() && other.ok()) << first.status() << other.status();
  EXPECT_EQ(allocate().status().code(), absl::StatusCode::kResourceExhausted) << "there is room";
  EXPECT_TRUE(cluster[0].Allocate(kBytes, MemoryUse::kSums).ok()) << "of others";
  // Free again where it has travelled to, and not taken by others.
  Waiter<Buffer> given;
  ExpectOwned(cluster[1], 0, {0, 0}, given, kBytes);
  ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, 0}, *std::move(first)).ok());
  Buffer away = given.Take();
  if (same_memory()) {
    EXPECT_FALSE(allocate().ok());
  }
  away.Reset();
  absl::StatusOr<Buffer> unnumbered = cluster[0].Allocate(kBytes, MemoryUse::kSums);
  EXPECT_TRUE(unnumbered.ok()) << unnumbered.status();
  absl::StatusOr<Buffer> again = allocate();
  EXPECT_TRUE(HoldsOnceItHasLeft([&] { return again.ok() || (again = allocate()).ok(); }))
      << again.status();
  EXPECT_GE(cluster[0].stats().numbered_bytes, 2 * kBytes);
}

TEST_P(TransportContract, HeapBuffersTravelToo) {
  Cluster cluster = Make(2);
  Waiter<Buffer> owned;
  Waiter<SharedBuffer> shared;
  ExpectOwned(cluster[1], 0, {0, 0}, owned, 40);
  ExpectShared(cluster[1], 0, {1, 0}, shared, 40);
  Buffer sum = MakeHeapBuffer(40);
  sum.as<float>()[9] = 5;
  SharedBuffer version = MakeHeapBuffer(40).Seal();
  ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, 0}, std::move(sum)).ok());
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, 0}, version).ok());
  EXPECT_EQ(owned.Take().as<float>()[9], 5);
  EXPECT_EQ(shared.Take().as<float>()[9], 0);
}

// Sizes at which transports change their ways; what is large is awaited before it is sent, and
// after.
TEST_P(TransportContract, PayloadsOfAllSizesArriveWholeAndInOrder) {
  const std::vector<int> sizes = {1,     15,     1024,    1039, 1040,  1041,   1056,
                                  5000,  16384,  65537,   3,    90000, 262144, 2,
                                  40000, 250000, 1 << 18, 7,    1025,  100000};
  size_t room = 0;
  for (const int values : sizes) room += AlignPayload(values * sizeof(float)) + 64;
  TransportOptions options = SmallOptions();
  options.parameter_bytes = options.sum_bytes = room;
  options.received_parameter_bytes = options.received_sum_bytes = room;
  options.slots = {3};
  Cluster cluster = Make(2, options);
  std::vector<Waiter<Buffer>> owned(sizes.size());
  std::vector<Waiter<SharedBuffer>> shared(sizes.size());
  const auto expect = [&](size_t i) {
    const size_t bytes = sizes[i] * sizeof(float);
    const WorkerId from(0);
    ASSERT_TRUE(cluster[1].ExpectOwned(from, {0, i}, bytes, owned[i].Callback()).ok());
    ASSERT_TRUE(cluster[1].ExpectShared(from, {1, i}, bytes, shared[i].Callback()).ok());
  };
  for (size_t i = 0; i < sizes.size() / 2; ++i) expect(i);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Buffer sum = Filled(cluster[0], MemoryUse::kSums, sizes[i], i);
    Buffer copy = Filled(cluster[0], MemoryUse::kParameters, sizes[i], 2 * i);
    ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, i}, std::move(sum)).ok());
    ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, i}, std::move(copy).Seal()).ok());
  }
  for (size_t i = sizes.size() / 2; i < sizes.size(); ++i) expect(i);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Buffer sum = owned[i].Take();
    const SharedBuffer copy = shared[i].Take();
    ASSERT_TRUE(sum && copy);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(sum.data()) % kPayloadAlignment, 0u);
    for (int v = 0; v < sizes[i]; ++v) {
      ASSERT_EQ(sum.as<float>()[v], static_cast<float>(i) + v);
      ASSERT_EQ(copy.as<float>()[v], static_cast<float>(2 * i) + v);
    }
  }
}

TEST_P(TransportContract, LargeMismatchesFailBothAndNameBoth) {
  constexpr size_t kLarge = 1 << 17;
  const std::vector<std::pair<MessageKey, size_t>> expected = {
      {{2, 111}, kLarge}, {{2, 222}, 2 * kLarge}, {{2, 222}, 64}};
  for (const auto& [key, bytes] : expected) {
    Cluster cluster = Make(2);
    Waiter<Buffer> sums;
    Waiter<Buffer> senders;
    ExpectOwned(cluster[0], 1, {4, 9}, senders);
    ExpectOwned(cluster[1], 0, key, sums, bytes);
    Buffer sum = Filled(cluster[0], MemoryUse::kSums, kLarge / sizeof(float), 0);
    ASSERT_TRUE(cluster[0].Give(WorkerId(1), {2, 222}, std::move(sum)).ok());
    const std::string sent = absl::StrCat("tag 222, ", kLarge + GetParam().hidden_bytes, " bytes");
    const std::string awaited =
        absl::StrCat("tag ", key.tag, ", ", bytes + GetParam().hidden_bytes, " bytes");
    for (Waiter<Buffer>* waiter : {&sums, &senders}) {
      const absl::Status status = waiter->TakeResult().status();
      EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, sent));
      EXPECT_THAT(status, Says(awaited));
    }
  }
}

TEST_P(TransportContract, SaysWhatCarriesItsMessages) {
  Cluster cluster = Make(2);
  EXPECT_EQ(cluster[0].LinkTo(WorkerId(0)), "self");
  Waiter<Buffer> waiter;
  ExpectOwned(cluster[1], 0, {0, 0}, waiter);
  Give(cluster[0], 1, {0, 0}, 0);
  waiter.Take();
  EXPECT_TRUE(Eventually([&] {
    return cluster[0].LinkTo(WorkerId(1)).find(GetParam().link) != std::string::npos;
  })) << cluster[0].LinkTo(WorkerId(1));
}

TEST_P(TransportContract, RefusesWhatMakesNoSense) {
  Cluster cluster = Make(2);
  if (cluster[0].name() == "faulty local") GTEST_SKIP() << "it finds out when the delay is over";
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  Buffer sum = Filled(cluster[0], MemoryUse::kSums, 16, 0);
  EXPECT_EQ(cluster[0].Give(WorkerId(2), {0, 0}, std::move(sum)).code(), kInvalid);
  EXPECT_EQ(cluster[0].Give(WorkerId(1), {0, 0}, Buffer()).code(), kInvalid);
  sum = Filled(cluster[0], MemoryUse::kSums, 16, 0);
  EXPECT_EQ(cluster[0].Give(WorkerId(1), {16, 0}, std::move(sum)).code(), kInvalid);
  Buffer parameters = Filled(cluster[0], MemoryUse::kParameters, 16, 0);
  EXPECT_EQ(cluster[0].Give(WorkerId(1), {0, 0}, std::move(parameters)).code(), kInvalid);
  Waiter<Buffer> never;
  EXPECT_EQ(cluster[0].ExpectOwned(WorkerId(-1), {0, 0}, 64, never.Callback()).code(), kInvalid);
  EXPECT_TRUE(cluster[0].status().ok());
  EXPECT_EQ(never.calls(), 0);
}

RINGZERO_FOR_ALL_TRANSPORTS(TransportContract);

}  // namespace
}  // namespace ringzero
