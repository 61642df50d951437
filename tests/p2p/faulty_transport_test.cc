// Faults as ordered: order kept under delay, one message lost, a failure after the n-th.
#include "p2p/faulty_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "p2p/local_transport.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

Cluster MakeFaultyPair(const FaultOptions& faults) {
  auto transports = CreateLocalTransports({SmallOptions(), SmallOptions()});
  EXPECT_TRUE(transports.ok()) << transports.status();
  (*transports)[0] = MakeFaulty(std::move((*transports)[0]), faults);
  return Cluster(*std::move(transports));
}

absl::Status GiveValue(Cluster& cluster, MessageKey key) {
  return cluster[0].Give(WorkerId(1), key,
                         Filled(cluster[0], MemoryUse::kSums, 16, static_cast<float>(key.tag)));
}

TEST(FaultyTransport, KeepsOrderUnderDelays) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Cluster cluster = MakeFaultyPair({.seed = seed, .max_delay = std::chrono::milliseconds(1)});
    std::vector<Waiter<Buffer>> waiters(40);
    for (uint64_t i = 0; i < 40; ++i) {
      const MessageKey key = {static_cast<uint8_t>(i % 2), i};
      ExpectOwned(cluster[1], 0, key, waiters[i]);
      ASSERT_TRUE(GiveValue(cluster, key).ok());
    }
    for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(waiters[i].Take().as<float>()[0], i);
    EXPECT_TRUE(cluster[0].Close().ok());
    EXPECT_TRUE(cluster[1].Close().ok());
  }
}

TEST(FaultyTransport, AFixedDelayIsTheLeast) {
  constexpr std::chrono::milliseconds kDelay(30);
  Cluster cluster = MakeFaultyPair({.min_delay = kDelay, .max_delay = kDelay});
  Waiter<Buffer> waiter;
  ExpectOwned(cluster[1], 0, {0, 1}, waiter);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(GiveValue(cluster, {0, 1}).ok());
  EXPECT_EQ(waiter.Take().as<float>()[0], 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kDelay);
}

TEST(FaultyTransport, DropsTheOrderedMessage) {
  Cluster cluster = MakeFaultyPair({.drop_message = 2});
  for (const uint64_t tag : {1, 2, 3}) ASSERT_TRUE(GiveValue(cluster, {0, tag}).ok());
  Waiter<Buffer> waiter;
  for (const uint64_t tag : {1, 2}) {
    ExpectOwned(cluster[1], 0, {0, tag}, waiter);
  }
  EXPECT_EQ(waiter.Take().as<float>()[0], 1);
  // The next one takes its place, and the channel is out of step.
  EXPECT_EQ(waiter.TakeResult().status().code(), absl::StatusCode::kInternal);
}

TEST(FaultyTransport, FailsAfterTheOrderedMessage) {
  Cluster cluster = MakeFaultyPair({.fail_after = 2});
  EXPECT_TRUE(GiveValue(cluster, {0, 1}).ok());
  EXPECT_TRUE(GiveValue(cluster, {0, 2}).ok());
  const absl::Status failure = GiveValue(cluster, {0, 3});
  EXPECT_EQ(failure, absl::InternalError("injected failure after 2 messages"));
  EXPECT_EQ(cluster[0].status(), failure);
  EXPECT_TRUE(Eventually([&] { return !cluster[1].status().ok(); }));
}

}  // namespace
}  // namespace ringzero
