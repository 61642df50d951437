// Faults as ordered: order is kept under delay.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <vector>

#include "p2p/transport.h"
#include "p2p/transport_decorator.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

using std::chrono::microseconds;

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
    std::mt19937_64 random(seed);
    const auto delay = [&random](WorkerId, MessageKey) { return microseconds(random() % 1000); };
    Cluster cluster = MakeFaultyPair({.delay = delay});
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
  Cluster cluster = MakeFaultyPair({.delay = [&](WorkerId, MessageKey) { return kDelay; }});
  BlockCall posted = PostEmpty(cluster[1], 0, {0, 1});
  const auto start = std::chrono::steady_clock::now();
  const BlockCall sent = SendTag(cluster, {0, 1});
  ExpectArrival(posted, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kDelay);
}

}  // namespace
}  // namespace ringzero
