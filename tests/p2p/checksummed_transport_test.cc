// A flipped bit, wherever it is, ends the run and names both ends and the message.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "p2p/transport_decorator.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

TEST(Checksum, ChangesWithEveryBit) {
  std::vector<std::byte> bytes(300, std::byte{7});
  const uint64_t before = Checksum(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_NE(Checksum(bytes), before) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_EQ(Checksum(bytes), before);
  EXPECT_NE(Checksum({}), Checksum({bytes.data(), 1}));
}

class ChecksummedTransportTest : public testing::TestWithParam<const char*> {
 protected:
  MakeTransports Bare() const {
    return std::string(GetParam()) == "local" ? LocalTransports() : ShmTransports();
  }
};

// From worker 0 to worker 1, and from the same block on to worker 2; a bit flips at worker 1, or
// at worker 2.
TEST_P(ChecksummedTransportTest, AFlippedBitIsFoundWhereItArrives) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const bool at_relay = seed % 2 == 0;
    const Damage damage{WorkerId(at_relay ? 1 : 2), 1, seed};
    Cluster cluster = MakeCluster(Checksummed(Damaged(Bare(), damage)),
                                  std::vector<TransportOptions>(3, SmallOptions()));
    BlockCall at1 = PostEmpty(cluster[1], 0, {1, 42}, 100);
    BlockCall at2 = PostEmpty(cluster[2], 1, {1, 43}, 100);
    const BlockCall first = SendFilled(cluster[0], 1, {1, 42}, 5, 100);
    absl::Status status = at1.Take();
    if (!at_relay) {
      ASSERT_EQ(status, absl::OkStatus());
      Ends sent;
      ASSERT_EQ(cluster[1].Send(WorkerId(2), {1, 43}, at1.block.as<std::byte>(), sent.Next()),
                absl::OkStatus());
      status = at2.Take();
    }
    const std::string words =
        at_relay ? "worker 0 sent worker 1 \"kind 1, tag 42\", which was damaged on its way: "
                 : "worker 1 sent worker 2 \"kind 1, tag 43\", which was damaged on its way: ";
    EXPECT_THAT(status, Fails(absl::StatusCode::kDataLoss, words));
    // It ends all, and no other memory was touched.
    for (int w = 0; w < 3; ++w) {
      EXPECT_TRUE(Eventually([&] { return !cluster[w].status().ok(); }));
      EXPECT_THAT(cluster[w].status(), Says(words));
    }
    EXPECT_TRUE(Holds(first.block, 5));
    EXPECT_TRUE(at_relay || Holds(at1.block, 5));
  }
}

// Back and forth between two blocks.
TEST_P(ChecksummedTransportTest, APayloadIsCheckedAfterEachChange) {
  for (const uint64_t flipped : {0, 3}) {
    Cluster cluster = MakeCluster(Checksummed(Damaged(Bare(), {WorkerId(1), flipped, 9})),
                                  std::vector<TransportOptions>(2, SmallOptions()));
    Buffer blocks[] = {Filled(cluster[0], MemoryUse::kSums, 100, 0), Empty(cluster[1], 100)};
    absl::Status status;
    for (uint64_t step = 0; step < 10 && status.ok(); ++step) {
      const int from = static_cast<int>(step % 2), to = 1 - from;
      const MessageKey key = {0, step / 2};
      Ends sent, arrived;
      blocks[from].as<float>()[step / 2] += 1;
      ASSERT_EQ(cluster[to].Post(WorkerId(from), key, blocks[to].as<std::byte>(), arrived.Next()),
                absl::OkStatus());
      ASSERT_EQ(cluster[from].Send(WorkerId(to), key, blocks[from].as<std::byte>(), sent.Next()),
                absl::OkStatus());
      status = arrived.Take();
      if (status.ok()) {
        ASSERT_EQ(sent.Take(), absl::OkStatus());
      }
    }
    if (flipped == 0) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(blocks[0].as<float>()[4], 6);
    } else {
      EXPECT_THAT(status, Fails(absl::StatusCode::kDataLoss, "\"kind 0, tag 2\""));
    }
  }
}

TEST_P(ChecksummedTransportTest, WithoutChecksumsADamagedPayloadGoesThrough) {
  // So that the tests above cannot pass because nothing was flipped, or all was lost.
  Cluster cluster = MakeCluster(Damaged(Bare(), {WorkerId(1), 1, 3}),
                                std::vector<TransportOptions>(2, SmallOptions()));
  BlockCall arrived = PostEmpty(cluster[1], 0, {1, 42}, 100);
  const BlockCall sent = SendFilled(cluster[0], 1, {1, 42}, 5, 100);
  ASSERT_EQ(arrived.Take(), absl::OkStatus());
  int bits = 0;
  for (size_t i = 0; i < sent.block.size(); ++i) {
    const std::byte differs = arrived.block.data()[i] ^ sent.block.data()[i];
    bits += std::popcount(std::to_integer<unsigned>(differs));
  }
  EXPECT_EQ(bits, 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, ChecksummedTransportTest, testing::Values("local", "shm"));

}  // namespace
}  // namespace ringzero
