// A flipped bit, wherever it is, ends the run and names both ends and the message.
#include "p2p/checksummed_transport.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "p2p/checksum.h"
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

// One owned and one shared message from worker 0 to worker 1, the shared one on to worker 2; bit
// flips at worker 2 and at worker 1.
TEST_P(ChecksummedTransportTest, AFlippedBitIsFoundWhereItArrives) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const bool at_relay = seed % 2 == 0;
    const Damage damage{WorkerId(at_relay ? 1 : 2), 1, seed};
    Cluster cluster = MakeCluster(Checksummed(Damaged(Bare(), damage)),
                                  std::vector<TransportOptions>(3, SmallOptions()));
    Waiter<SharedBuffer> at1;
    Waiter<SharedBuffer> at2;
    ExpectShared(cluster[1], 0, {1, 42}, at1, 400);
    ExpectShared(cluster[2], 1, {1, 43}, at2, 400);
    const SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, 100, 5).Seal();
    ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, 42}, version).ok());
    absl::Status status;
    if (at_relay) {
      status = at1.TakeResult().status();
    } else {
      ASSERT_TRUE(cluster[1].Share(WorkerId(2), {1, 43}, at1.Take()).ok());
      status = at2.TakeResult().status();
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
    for (int i = 0; i < 100; ++i) ASSERT_EQ(version.as<float>()[i], 5 + i);
  }
}

TEST_P(ChecksummedTransportTest, AnOwnedPayloadIsCheckedAfterEachChange) {
  for (const uint64_t flipped : {0, 3}) {
    Cluster cluster = MakeCluster(Checksummed(Damaged(Bare(), {WorkerId(1), flipped, 9})),
                                  std::vector<TransportOptions>(2, SmallOptions()));
    Buffer sum = Filled(cluster[0], MemoryUse::kSums, 100, 0);
    absl::Status status;
    for (uint64_t turn = 0; turn < 5 && status.ok(); ++turn) {
      for (const int from : {0, 1}) {
        Waiter<Buffer> waiter;
        const WorkerId to(1 - from);
        ASSERT_TRUE(
            cluster[to.value].ExpectOwned(WorkerId(from), {0, turn}, 400, waiter.Callback()).ok());
        sum.as<float>()[turn] += 1;
        ASSERT_TRUE(cluster[from].Give(to, {0, turn}, std::move(sum)).ok());
        absl::StatusOr<Buffer> got = waiter.TakeResult();
        status = got.status();
        if (!got.ok()) break;
        sum = *std::move(got);
      }
    }
    if (flipped == 0) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(sum.as<float>()[4], 6);
    } else {
      EXPECT_THAT(status, Fails(absl::StatusCode::kDataLoss, "\"kind 0, tag 2\""));
    }
  }
}

// A sum that has come, is added to, and then goes around as it is.
TEST_P(ChecksummedTransportTest, WhatWasReceivedAndChangedMayBeShared) {
  Cluster cluster =
      MakeCluster(Checksummed(Bare()), std::vector<TransportOptions>(2, SmallOptions()));
  Waiter<Buffer> owned;
  ExpectOwned(cluster[1], 0, {0, 1}, owned, 400);
  Give(cluster[0], 1, {0, 1}, 0, 100);
  RZ_ASSIGN(Buffer sum, owned.TakeResult());
  sum.as<float>()[7] = 42;
  Waiter<SharedBuffer> shared;
  ExpectShared(cluster[0], 1, {1, 1}, shared, 400);
  ASSERT_TRUE(cluster[1].Share(WorkerId(0), {1, 1}, std::move(sum).Seal()).ok());
  RZ_ASSIGN(SharedBuffer got, shared.TakeResult());
  EXPECT_EQ(got.as<float>()[7], 42);
}

TEST_P(ChecksummedTransportTest, WithoutChecksumsADamagedPayloadGoesThrough) {
  // So that the tests above cannot pass because nothing was flipped, or all was lost.
  Cluster cluster = MakeCluster(Damaged(Bare(), {WorkerId(1), 1, 3}),
                                std::vector<TransportOptions>(2, SmallOptions()));
  Waiter<SharedBuffer> waiter;
  ExpectShared(cluster[1], 0, {1, 42}, waiter, 400);
  const SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, 100, 5).Seal();
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, 42}, version).ok());
  const SharedBuffer got = waiter.Take();
  int bits = 0;
  for (size_t i = 0; i < version.size(); ++i) {
    bits += std::popcount(std::to_integer<unsigned>(got.data()[i] ^ version.data()[i]));
  }
  EXPECT_EQ(bits, 1);
}

TEST_P(ChecksummedTransportTest, OneVersionAfterTheOtherInOnePlace) {
  // As owners do: share, update in place once no worker reads, share again.
  Cluster cluster =
      MakeCluster(Checksummed(Bare()), std::vector<TransportOptions>(2, SmallOptions()));
  SharedBuffer version = Filled(cluster[0], MemoryUse::kParameters, 100, 0).Seal();
  for (uint64_t turn = 0; turn < 10; ++turn) {
    Waiter<SharedBuffer> waiter;
    ExpectShared(cluster[1], 0, {1, turn}, waiter, 400);
    ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, turn}, version).ok());
    SharedBuffer got = waiter.Take();
    EXPECT_EQ(got.as<float>()[0], turn);
    EXPECT_EQ(got.size(), 400u);
    got.Reset();
    ASSERT_TRUE(Eventually([&] { return version.holders() == 1; }));
    RZ_ASSIGN(Buffer again, std::move(version).Unseal());
    again.as<float>()[0] += 1;
    version = std::move(again).Seal();
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ChecksummedTransportTest, testing::Values("local", "shm"));

}  // namespace
}  // namespace ringzero
