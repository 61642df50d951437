// Which transport is taken, why, and what is refused.
#include "p2p/connect.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "p2p/ucx_transport.h"

namespace ringzero {
namespace {

using Choice = TransportChoice;

TEST(ConnectTest, OneHostTakesSharedMemory) {
  const auto chosen = ChooseTransport(Choice::kAuto, {"a x", "a x", "a x"});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->transport, Choice::kShm);
  EXPECT_EQ(chosen->why, "shm between all workers (one host)");
  EXPECT_EQ(ChooseTransport(Choice::kShm, {"a", "a"})->why, "shm between all workers (asked for)");
}

TEST(ConnectTest, SeveralHostsNeedUcx) {
  const auto chosen = ChooseTransport(Choice::kAuto, {"a x", "b y", "a x"});
  if (UcxVersion().empty()) {
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(chosen.status().message(), "the workers are on 2 hosts"));
    EXPECT_TRUE(absl::StrContains(chosen.status().message(), "RINGZERO_WITH_UCX"));
    return;
  }
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->transport, Choice::kAuto);
  EXPECT_EQ(chosen->why, "shm within a host, ucx between hosts (2 hosts)");
  const auto alone = ChooseTransport(Choice::kAuto, {"a x", "b y", "c z"});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->transport, Choice::kUcx);
  EXPECT_EQ(alone->why, "ucx between all workers (3 hosts)");
}

TEST(ConnectTest, WhatIsAskedForAndNotPossibleIsAnError) {
  const auto shm = ChooseTransport(Choice::kShm, {"node0 x", "node0 x", "node1 y"});
  EXPECT_EQ(shm.status(),
            absl::InvalidArgumentError("cyclic.transport: shm is for workers of one host, but "
                                       "worker 2 is on node1 and worker 0 on node0; auto or ucx "
                                       "would do"));
  EXPECT_EQ(ChooseTransport(Choice::kNccl, {"a"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringzero
