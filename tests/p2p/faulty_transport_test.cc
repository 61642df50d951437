// Faults as ordered: order kept under delay, one message lost, a failure after the n-th.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "p2p/local_transport.h"
#include "p2p/transport_decorator.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

Cluster MakeFaultyPair(const FaultOptions& faults) {
  auto transports = CreateLocalTransports({SmallOptions(), SmallOptions()});
  EXPECT_TRUE(transports.ok()) << transports.status();
  (*transports)[0] = MakeFaulty(std::move((*transports)[0]), faults);
  return Cluster(*std::move(transports));
}

BlockCall SendTag(Cluster& cluster, MessageKey key) {
  return SendFilled(cluster[0], 1, key, static_cast<float>(key.tag));
}

TEST(FaultyTransport, KeepsOrderUnderDelays) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Cluster cluster = MakeFaultyPair({.seed = seed, .max_delay = std::chrono::milliseconds(1)});
    std::vector<BlockCall> posted, sent;
    for (uint64_t i = 0; i < 40; ++i) {
      const MessageKey key = {static_cast<uint8_t>(i % 2), i};
      posted.push_back(PostEmpty(cluster[1], 0, key));
      sent.push_back(SendTag(cluster, key));
    }
    for (uint64_t i = 0; i < 40; ++i) ExpectArrival(posted[i], static_cast<float>(i));
    EXPECT_TRUE(cluster[0].Close().ok());
    EXPECT_TRUE(cluster[1].Close().ok());
  }
}

TEST(FaultyTransport, AFixedDelayIsTheLeast) {
  constexpr std::chrono::milliseconds kDelay(30);
  Cluster cluster = MakeFaultyPair({.min_delay = kDelay, .max_delay = kDelay});
  BlockCall posted = PostEmpty(cluster[1], 0, {0, 1});
  const auto start = std::chrono::steady_clock::now();
  const BlockCall sent = SendTag(cluster, {0, 1});
  ExpectArrival(posted, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kDelay);
}

TEST(FaultyTransport, DropsTheOrderedMessage) {
  Cluster cluster = MakeFaultyPair({.drop_message = 2});
  std::vector<BlockCall> sent;
  for (const uint64_t tag : {1, 2, 3}) sent.push_back(SendTag(cluster, {0, tag}));
  EXPECT_EQ(sent[1].Take(), absl::OkStatus()) << "its sender sees nothing";
  BlockCall first = PostEmpty(cluster[1], 0, {0, 1});
  ExpectArrival(first, 1);
  // The next one takes its place, and the channel is out of step.
  BlockCall second = PostEmpty(cluster[1], 0, {0, 2});
  EXPECT_EQ(second.Take().code(), absl::StatusCode::kInternal);
}

TEST(FaultyTransport, FailsAfterTheOrderedMessage) {
  Cluster cluster = MakeFaultyPair({.fail_after = 2});
  const BlockCall first = SendTag(cluster, {0, 1}), second = SendTag(cluster, {0, 2});
  Ends third;
  const absl::Status failure =
      cluster[0].Send(WorkerId(1), {0, 3}, first.block.as<std::byte>(), third.Next());
  EXPECT_EQ(failure, absl::InternalError("injected failure after 2 messages"));
  EXPECT_EQ(cluster[0].status(), failure);
  EXPECT_TRUE(Eventually([&] { return !cluster[1].status().ok(); }));
  EXPECT_EQ(third.calls(), 0);
}

}  // namespace
}  // namespace ringzero
