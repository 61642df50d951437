// How a run ends when something is wrong: one error, named, on every worker, and no worker hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "base/status.h"
#include "p2p/transport_decorator.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

const ToyOptions kToy{.workers = 2, .stages = 2, .window = 2, .hosts = {2}};

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(std::unique_ptr<Transport> transport,
                                                     int worker, const ToyOptions& toy,
                                                     std::chrono::milliseconds wait_timeout) {
  EngineOptions options{.plan = ToyPlan(toy),
                        .self = WorkerId(worker),
                        .transport = std::move(transport),
                        .layouts = ToyLayouts(toy)};
  options.metrics_count = 1;
  options.wait_timeout = wait_timeout;
  return Engine::Create(std::move(options));
}

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Transport> transport, int worker,
                                   const ToyOptions& toy, std::chrono::milliseconds wait_timeout) {
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      CreateEngine(std::move(transport), worker, toy, wait_timeout);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::vector<std::unique_ptr<Transport>> MakeAll(const MakeTransports& transports,
                                                const ToyOptions& toy) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < toy.workers; ++w) {
    auto each = TransportNeeds(ToyPlan(toy), WorkerId(w), 1);
    EXPECT_TRUE(each.ok()) << each.status();
    needs.push_back(*std::move(each));
  }
  auto made = transports(needs);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Engines over their transports: worker 0 loses its patience after `wait_timeout`, the others
// later.
std::vector<std::unique_ptr<Engine>> MakeRing(
    const MakeTransports& transports,
    std::chrono::milliseconds wait_timeout = std::chrono::seconds(60),
    const ToyOptions& toy = kToy) {
  std::vector<std::unique_ptr<Transport>> made = MakeAll(transports, toy);
  std::vector<std::unique_ptr<Engine>> ring;
  for (int w = 0; w < toy.workers; ++w) {
    ring.push_back(
        MakeEngine(std::move(made[w]), w, toy, w == 0 ? wait_timeout : std::chrono::seconds(60)));
  }
  return ring;
}

// An ordinary loop without any computing, up to the first error or the end.
absl::Status Drive(Engine& engine, int stages) {
  while (true) {
    const absl::StatusOr<LapTask> lap = engine.NextLap();
    if (!lap.ok()) return lap.status();
    if (lap->kind != LapTask::Kind::kTrain) return absl::OkStatus();
    for (int j = 0; j < stages; ++j) {
      RZ_RETURN_IF_ERROR(engine.BeginForward(StageId(j)).status());
      RZ_RETURN_IF_ERROR(engine.EndForward(StageId(j), MakeHeapBuffer(64)));
    }
    for (int j = stages - 1; j >= 0; --j) {
      RZ_RETURN_IF_ERROR(engine.BeginBackward(StageId(j)).status());
      RZ_RETURN_IF_ERROR(engine.EndBackward(StageId(j), {}));
    }
    RZ_RETURN_IF_ERROR(engine.EndMicroBatch({0.0}));
  }
}

// Polls until the engine has failed; the limit is for a broken one only.
absl::Status EndOf(const Engine& engine) {
  for (int i = 0; i < 500 && engine.status().ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return engine.status();
}

class EngineFailureTest : public testing::TestWithParam<const char*> {
 protected:
  MakeTransports Transports() const {
    return std::string(GetParam()) == "local" ? LocalTransports() : ShmTransports();
  }
};

TEST_P(EngineFailureTest, AStageOutOfOrderIsNamedWithTheOneExpected) {
  auto ring = MakeRing(Transports());
  const auto copies = ring[0]->BeginForward(StageId(1));
  EXPECT_THAT(copies, Fails(absl::StatusCode::kFailedPrecondition, "\"F1\""));
  EXPECT_THAT(copies, Says("\"F0 t0 l0 v-1\" (s0)"));
}

TEST_P(EngineFailureTest, EndingWhatWasNotBegunIsAnError) {
  auto ring = MakeRing(Transports());
  EXPECT_EQ(ring[0]->EndForward(StageId(0), MakeHeapBuffer(64)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(EngineFailureTest, StatisticsOfTheWrongSizeAreRefused) {
  auto ring = MakeRing(Transports());
  ASSERT_TRUE(ring[0]->BeginForward(StageId(0)).ok());
  EXPECT_EQ(ring[0]->EndForward(StageId(0), MakeHeapBuffer(4)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(EngineFailureTest, ALateMessageIsNamedAtTheDeadline) {
  auto ring = MakeRing(Transports(), std::chrono::milliseconds(300));
  // Worker 1 never computes: its first message, worker 0's copy of stage 1, comes at once from the
  // owner, but the gradient sums never come round, and so the first update never comes, which
  // worker 0 waits for to begin the next sum in the same memory.
  const absl::Status status = Drive(*ring[0], 2);
  EXPECT_THAT(status, Fails(absl::StatusCode::kDeadlineExceeded, testing::StartsWith("worker 1 ")));
  EXPECT_THAT(status, Says("so worker 0 waited"));
  EXPECT_THAT(status, Says("\"Update"));
  EXPECT_THAT(status, Says("to start \"B"));
  // The other worker learns why.
  absl::Status other = ring[1]->BeginForward(StageId(0)).status();
  if (other.ok()) other = ring[1]->EndForward(StageId(0), MakeHeapBuffer(64));
  EXPECT_THAT(EndOf(*ring[1]), Fails(absl::StatusCode::kDeadlineExceeded, "worker 0"));
}

// Worker 0 of a process that is stopped for longer than worker 0 would wait; worker 1 computes
// half a second after a byte has come. 0: both get through.
int RunStopped(const MakeTransports& transports, int told, int tell) {
  auto ring = MakeRing(transports, std::chrono::seconds(2));
  absl::Status zero;
  std::thread waiting([&] { zero = Drive(*ring[0], kToy.stages); });
  // What cannot come without worker 1.
  while (ring[0]->stats().wait_update_seconds == 0) std::this_thread::yield();
  char byte = 0;
  if (write(tell, &byte, 1) != 1 || read(told, &byte, 1) != 1) return 1;
  // Worker 0 looks at its deadline again, and would have asked whose fault it is.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const absl::Status one = Drive(*ring[1], kToy.stages);
  waiting.join();
  if (!zero.ok()) std::fprintf(stderr, "%s\n", zero.ToString().c_str());
  return zero.ok() && one.ok() ? 0 : 2;
}

// The whole job is stopped (Ctrl-Z) and goes on: that time is no worker's fault.
TEST_P(EngineFailureTest, WaitTimeoutCountsNoTimeInWhichTheProcessWasStopped) {
  int to_child[2], from_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(from_child), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(RunStopped(Transports(), to_child[0], from_child[1]));
  char byte = 0;
  ASSERT_EQ(read(from_child[0], &byte, 1), 1);
  int status = 0;
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ASSERT_EQ(write(to_child[1], &byte, 1), 1);
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const int each : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(each);
}

const ToyOptions kThree{.workers = 3, .stages = 6, .iterations = 8, .window = 4, .hosts = {3}};

// Worker 0 waits for its neighbour, worker 2, and that one for worker 1; under every rule.
class EngineBlameTest : public testing::TestWithParam<std::tuple<const char*, Rule, int>> {
 protected:
  // Drives workers 0 and 2; what worker 0 ends with. `at_one` is all that worker 1 does.
  absl::Status Blame(const std::function<void(Engine&)>& at_one) {
    ToyOptions toy = kThree;
    toy.rule = std::get<1>(GetParam());
    toy.zero_stage = std::get<2>(GetParam());
    const bool local = std::string(std::get<0>(GetParam())) == "local";
    auto ring =
        MakeRing(local ? LocalTransports() : ShmTransports(), std::chrono::milliseconds(200), toy);
    at_one(*ring[1]);
    std::thread other([&] { EXPECT_FALSE(Drive(*ring[2], toy.stages).ok()); });
    absl::Status status = Drive(*ring[0], toy.stages);
    other.join();
    EXPECT_EQ(ring[2]->status().code(), status.code());
    EXPECT_THAT(ring[2]->status(), Says(status.message()));
    return status;
  }
};

TEST_P(EngineBlameTest, TheWorkerThatComputesIsNamedAndNotTheNeighbour) {
  const absl::Status status = Blame([](Engine& one) {
    ASSERT_TRUE(one.BeginForward(StageId(0)).ok());
    ASSERT_TRUE(one.EndForward(StageId(0), MakeHeapBuffer(64)).ok());
    ASSERT_TRUE(one.BeginForward(StageId(1)).ok());
  });
  EXPECT_THAT(status, Fails(absl::StatusCode::kDeadlineExceeded,
                            testing::MatchesRegex(
                                "worker 1 has been computing \"F1 t0 l0 v-?[01]\" for [0-9.]+ s, "
                                "(so worker 2 waits for \"Recv [^\"]*\", )?"
                                "(so worker 0 waits for \"Recv retire [^\"]*\", )?"
                                "so worker 0 waited [0-9.]+ s for .*\".*\", to start \".*\"")));
}

TEST_P(EngineBlameTest, SoIsOneWhoseLoopDoesNotComeBack) {
  const absl::Status status = Blame([](Engine&) {});
  EXPECT_THAT(status, Says(testing::StartsWith("worker 1 has been outside of the engine for ")));
  EXPECT_THAT(status, Says("before \"F0 t0"));
}

INSTANTIATE_TEST_SUITE_P(All, EngineBlameTest,
                         testing::Combine(testing::Values("local", "shm"),
                                          testing::Values(Rule::kDp, Rule::kCdpV1, Rule::kCdpV2),
                                          testing::Range(0, 4)));

// Loses its n-th message (from 1, all channels). The sender hears that it has left.
class LosingTransport final : public TransportDecorator {
 public:
  LosingTransport(std::unique_ptr<Transport> inner, uint64_t lost)
      : TransportDecorator(std::move(inner)), lost_(lost) {}
  ~LosingTransport() override {
    if (teller_.joinable()) teller_.join();
    DestroyInner();
  }

  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override {
    if (++messages_ != lost_) return inner().Send(to, key, block, std::move(sent));
    teller_ = std::thread([sent = std::move(sent)] { sent(absl::OkStatus()); });
    return absl::OkStatus();
  }
  absl::Status SendWord(WorkerId to, MessageKey key) override {
    return ++messages_ == lost_ ? absl::OkStatus() : inner().SendWord(to, key);
  }

 private:
  const uint64_t lost_;
  std::atomic<uint64_t> messages_{0};
  std::thread teller_;
};

TEST_P(EngineFailureTest, ALostMessageIsToldFromALateOne) {
  // Whichever message of worker 1 is lost: the next one in its channel does not match, or worker 0
  // waits for it until its patience ends, and learns that it was sent.
  int lost = 0;
  for (uint64_t drop = 1; drop <= 12; ++drop) {
    ToyOptions toy = kToy;
    toy.iterations = 1;
    std::vector<std::unique_ptr<Transport>> made = MakeAll(Transports(), toy);
    made[1] = std::make_unique<LosingTransport>(std::move(made[1]), drop);
    auto zero = MakeEngine(std::move(made[0]), 0, toy, std::chrono::milliseconds(100));
    auto one = CreateEngine(std::move(made[1]), 1, toy, std::chrono::seconds(60));
    if (!one.ok()) {  // its first words are out, and worker 0 has seen that one of them is missing
      EXPECT_THAT(one.status(), Says("channel 1 -> 0 out of step"));
      continue;
    }
    std::thread other([&] { (void)Drive(**one, toy.stages); });
    absl::Status status = Drive(*zero, toy.stages);
    if (status.ok()) status = zero->Finish();
    zero->Abort(absl::CancelledError("seen enough"));
    other.join();
    if (status.code() != absl::StatusCode::kDeadlineExceeded) continue;
    lost += absl::StrContains(status.message(), "worker 1 has sent that message, but it did not");
  }
  EXPECT_GT(lost, 0);
}

TEST_P(EngineFailureTest, AWorkerThatLeavesIsNamedByTheOther) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    ToyOptions toy = kToy;
    toy.zero_stage = zero_stage;
    auto ring = MakeRing(Transports(), std::chrono::seconds(60), toy);
    ring[1].reset();  // without Finish
    const absl::Status status = EndOf(*ring[0]);
    EXPECT_THAT(status, Says("worker 1"));
    EXPECT_EQ(ring[0]->BeginForward(StageId(0)).status(), status);
  }
}

TEST_P(EngineFailureTest, AnAbortReachesEveryWorkerAndTheFirstOneStays) {
  auto ring = MakeRing(Transports());
  ring[0]->Abort(absl::DataLossError("the first"));
  ring[0]->Abort(absl::InternalError("the second"));
  EXPECT_EQ(ring[0]->status().message(), "the first");
  EXPECT_THAT(EndOf(*ring[1]), Fails(absl::StatusCode::kDataLoss, "the first"));
}

// Two engines, and a stamp of worker `home`'s first lent block in memory of this use, with `bytes` of
// payload, that says something else. What worker 0 ends with.
absl::Status DriveWithAWrongStamp(const MakeTransports& transports, int home, MemoryUse use,
                                  int64_t bytes) {
  MappedMemory memory;
  auto ring = MakeRing([&](const std::vector<TransportOptions>& options) {
    auto made = transports(options);
    memory = (*made)[home]->MemoryOf(WorkerId(home), use);
    return made;
  });
  auto* const stamp = reinterpret_cast<std::atomic<int64_t>*>(
      memory.bytes.data() + AlignPayload(static_cast<size_t>(bytes)));
  EXPECT_EQ(stamp->exchange(77), 0) << "version 0, or free for the first sum";
  std::thread other([&] { EXPECT_FALSE(Drive(*ring[1], kToy.stages).ok()); });
  const absl::Status status = Drive(*ring[0], kToy.stages);
  other.join();
  return status;
}

TEST_P(EngineFailureTest, ALentVersionThatIsAnotherEndsTheRun) {
  const Plan plan = ToyPlan(kToy);
  EXPECT_THAT(DriveWithAWrongStamp(Transports(), plan.owner(StageId(0)).value,
                                   MemoryUse::kParameters, plan.stages[0].parameter_bytes),
              Fails(absl::StatusCode::kInternal, "does not hold what is read: its stamp is 77"));
}

TEST_P(EngineFailureTest, ALentSumThatIsNotFreeIsNotBegun) {
  const Plan plan = ToyPlan(kToy);
  const absl::Status status =
      DriveWithAWrongStamp(Transports(), 0, MemoryUse::kSums, plan.stages[0].sum_bytes);
  EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, "\"Add s0 t0 l0\": S.s0.0: "));
  EXPECT_THAT(status, Says("its stamp is 77, wanted 0"));
}

TEST_P(EngineFailureTest, FinishingEarlyNamesWhatIsLeft) {
  auto ring = MakeRing(Transports());
  const absl::Status status = ring[0]->Finish();
  EXPECT_THAT(status, Fails(absl::StatusCode::kFailedPrecondition, "\"F0 t0 l0 v-1\""));
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineFailureTest, testing::Values("local", "shm"));

TEST(EngineCreateTest, RefusesLayoutsThatAreNotThePlans) {
  EngineOptions options{.plan = ToyPlan({.stages = 2}), .layouts = ToyLayouts({.stages = 3})};
  EXPECT_EQ(Engine::Create(std::move(options)).status().code(), absl::StatusCode::kInvalidArgument);
  EngineOptions other{.plan = ToyPlan({.stages = 2}),
                      .layouts = ToyLayouts({.stages = 2, .width = 99})};
  EXPECT_THAT(Engine::Create(std::move(other)), Says("stage 0"));
}

TEST(EngineCreateTest, SeveralWorkersNeedATransport) {
  EngineOptions options{.plan = ToyPlan(kToy), .layouts = ToyLayouts(kToy)};
  EXPECT_EQ(Engine::Create(std::move(options)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringzero
