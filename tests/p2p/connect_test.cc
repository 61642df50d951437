// Which transport is taken, why, and what is refused.
#include "p2p/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "p2p/job/hosts.h"
#include "p2p/nccl/nccl_transport.h"
#include "p2p/ucx/ucx_transport.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Choice = TransportChoice;

TEST(ConnectTest, OneHostTakesSharedMemory) {
  RZ_ASSIGN(const auto chosen, ChooseTransport(Choice::kAuto, {"a x", "a x", "a x"}));
  EXPECT_EQ(chosen.transport, Choice::kShm);
  EXPECT_EQ(chosen.why, "shm between all workers (one host)");
  EXPECT_EQ(ChooseTransport(Choice::kShm, {"a", "a"})->why, "shm between all workers (asked for)");
}

TEST(ConnectTest, SeveralHostsNeedUcx) {
  const auto chosen = ChooseTransport(Choice::kAuto, {"a x", "b y", "a x"});
  if (UcxVersion().empty()) {
    EXPECT_THAT(chosen, Fails(absl::StatusCode::kInvalidArgument, "the workers are on 2 hosts"));
    EXPECT_THAT(chosen, Says("RINGZERO_WITH_UCX"));
    return;
  }
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->transport, Choice::kAuto);
  EXPECT_EQ(chosen->why, "shm within a host, ucx between hosts (2 hosts)");
  RZ_ASSIGN(const auto alone, ChooseTransport(Choice::kAuto, {"a x", "b y", "c z"}));
  EXPECT_EQ(alone.transport, Choice::kUcx);
  EXPECT_EQ(alone.why, "ucx between all workers (3 hosts)");
}

TEST(ConnectTest, WhatIsAskedForAndNotPossibleIsAnError) {
  const auto shm = ChooseTransport(Choice::kShm, {"node0 x", "node0 x", "node1 y"});
  EXPECT_EQ(shm.status(),
            absl::InvalidArgumentError("cyclic.transport: shm is for workers of one host, but "
                                       "worker 2 is on node1 and worker 0 on node0; auto or ucx "
                                       "would do"));
  EXPECT_THAT(ChooseTransport(Choice::kNccl, {"a"}), Says("nccl moves the memory of GPUs"));
}

TEST(ConnectTest, WorkersOfOneHostShareMemoryUnlessAnotherWayIsAskedFor) {
  using Counts = std::vector<int>;
  EXPECT_EQ(*WorkersThatShare(Choice::kAuto, {}, 3), (Counts{3}));
  EXPECT_EQ(*WorkersThatShare(Choice::kAuto, {"a x", "a x"}, 2), (Counts{2}));
  EXPECT_THAT(WorkersThatShare(Choice::kShm, {"a x", "b y"}, 2),
              Says("shm is for workers of one host"));
  if (UcxVersion().empty()) return;
  EXPECT_EQ(*WorkersThatShare(Choice::kAuto, {"a x", "b y"}, 2), Counts());
  EXPECT_EQ(*WorkersThatShare(Choice::kAuto, {"a x", "a x", "b y", "a x"}, 4), (Counts{2, 1, 1}));
  EXPECT_EQ(*WorkersThatShare(Choice::kUcx, {"a x", "a x"}, 2), Counts());
}

TEST(ConnectTest, MemoryOfGpusGoesOverWhatCanMoveIt) {
  EXPECT_THAT(ChooseTransport(Choice::kShm, {"a", "a"}, MemoryKind::kCuda),
              Says("shm moves the hosts' memory"));
  RZ_ASSIGN(const auto nccl, ChooseTransport(Choice::kNccl, {"a x", "b y"}, MemoryKind::kCuda));
  EXPECT_EQ(nccl.transport, Choice::kNccl);
  EXPECT_EQ(nccl.why, "nccl between all workers (asked for; 2 hosts)");
  if (UcxVersion().empty()) GTEST_SKIP() << "built without ucx, which auto means here";
  RZ_ASSIGN(const auto chosen, ChooseTransport(Choice::kAuto, {"a", "a"}, MemoryKind::kCuda));
  EXPECT_EQ(chosen.transport, Choice::kUcx);
}

JobSeat SeatOf(int self, std::shared_ptr<Rendezvous> rendezvous) {
  return {.self = WorkerId(self),
          .workers = 2,
          .secret = "a secret of this job",
          .rendezvous = std::move(rendezvous),
          .join_limit = kDeadline};
}

using Connecting = std::future<absl::StatusOr<Connection>>;

Connecting ConnectAs(const JobSeat& seat, Choice choice) {
  return std::async(std::launch::async, [seat, choice] {
    return Connect(seat, {.transport = choice, .options = SmallOptions()});
  });
}

TEST(ConnectTest, WorkersOfOneHostMeetAndTalk) {
  const auto rendezvous = MakeLocalRendezvous();
  Connecting at0 = ConnectAs(SeatOf(0, rendezvous), Choice::kAuto);
  Connecting at1 = ConnectAs(SeatOf(1, rendezvous), Choice::kAuto);
  const absl::StatusOr<Connection> made[] = {at0.get(), at1.get()};
  for (int w = 0; w < 2; ++w) {
    ASSERT_TRUE(made[w].ok()) << made[w].status();
    EXPECT_EQ(made[w]->transport->name(), "shm");
    EXPECT_EQ(made[w]->why, "shm between all workers (one host)");
  }
  for (int from = 0; from < 2; ++from) {
    PassOne(*made[from]->transport, *made[1 - from]->transport);
  }
}

using Interfaces = absl::StatusOr<std::vector<std::string>>;

// Of two workers that call themselves hosts `host0` and `host1`.
Interfaces InterfacesOf0(const std::string& host0, const std::string& host1) {
  const auto rendezvous = MakeLocalRendezvous();
  const std::vector<std::string> hosts = {host0, host1};
  auto at1 = std::async(std::launch::async,
                        [&] { return InterfacesToOtherHosts(SeatOf(1, rendezvous), hosts); });
  Interfaces at0 = InterfacesToOtherHosts(SeatOf(0, rendezvous), hosts);
  EXPECT_EQ(at1.get(), at0);
  return at0;
}

TEST(ConnectTest, AHostWithOurOwnAddressesIsBehindLoopback) {
  EXPECT_EQ(InterfacesOf0("a x", "b y"), Interfaces(std::vector<std::string>{"lo"}));
  EXPECT_EQ(InterfacesOf0("a x", "a x"), Interfaces(std::vector<std::string>()));
}

TEST(ConnectTest, AWorkerToWhomNoInterfaceLeadsIsNamed) {
  const auto rendezvous = MakeLocalRendezvous();
  ASSERT_TRUE(rendezvous->Put("addresses/1", "no.address").ok());
  const Interfaces found = InterfacesToOtherHosts(SeatOf(0, rendezvous), {"a x", "b y"});
  EXPECT_EQ(found.status(),
            absl::FailedPreconditionError("no network interface leads to worker 1 (no.address); "
                                          "UCX_NET_DEVICES can name the interfaces"));
}

TEST(ConnectTest, NcclWithoutGpusIsAnErrorAtEveryWorker) {
  if (NcclAvailable().ok()) GTEST_SKIP() << "there is a GPU";
  const auto rendezvous = MakeLocalRendezvous();
  Connecting connecting[2];
  for (int w = 0; w < 2; ++w) {
    connecting[w] = std::async(std::launch::async, [&rendezvous, w] {
      TransportOptions options = SmallOptions();
      options.memory = MemoryKind::kCuda;
      return Connect(SeatOf(w, rendezvous), {.transport = Choice::kNccl, .options = options});
    });
  }
  for (Connecting& each : connecting) EXPECT_EQ(each.get().status(), NcclAvailable());
}

// Worker 1's, which fails after all have met.
class FailsLate final : public Rendezvous {
 public:
  explicit FailsLate(std::shared_ptr<Rendezvous> store) : store_(std::move(store)) {}
  std::string name() const override { return store_->name(); }
  absl::Status Put(const std::string& key, const std::string& value) override {
    if (absl::StartsWith(key, "link/")) return absl::DataLossError("nothing works any more");
    return store_->Put(key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    return store_->Get(key, limit);
  }

 private:
  const std::shared_ptr<Rendezvous> store_;
};

TEST(ConnectTest, WhoDiesBeforeItToldItsLinkIsNotAwaited) {
  if (UcxVersion().empty()) GTEST_SKIP() << "built without ucx; shm tells no links";
  const auto rendezvous = MakeLocalRendezvous();
  Connecting at0 = ConnectAs(SeatOf(0, rendezvous), Choice::kUcx);
  Connecting at1 = ConnectAs(SeatOf(1, std::make_shared<FailsLate>(rendezvous)), Choice::kUcx);
  EXPECT_EQ(at1.get().status(), absl::DataLossError("nothing works any more"));
  const absl::Status end = at0.get().status();
  EXPECT_NE(end.code(), absl::StatusCode::kDeadlineExceeded) << end;
  EXPECT_THAT(end, Says("worker 1"));
}

}  // namespace
}  // namespace ringzero
