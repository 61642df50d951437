// How a run ends when something is wrong: one error, named, on every worker, and nobody hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/zero/toy_ring.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

constexpr ToyOptions kToy{.workers = 2, .stages = 2, .window = 2};

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Transport> transport, int worker,
                                   const ToyOptions& toy, std::chrono::milliseconds wait_timeout) {
  EngineOptions options{.plan = ToyPlan(toy),
                        .self = WorkerId(worker),
                        .transport = std::move(transport),
                        .layouts = ToyLayouts(toy)};
  options.metrics_count = 1;
  options.wait_timeout = wait_timeout;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// Two engines over one pair of transports.
std::vector<std::unique_ptr<Engine>> MakeRing(
    const MakeTransports& transports,
    std::chrono::milliseconds wait_timeout = std::chrono::seconds(60)) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < 2; ++w) {
    needs.push_back(TransportNeeds(ToyPlan(kToy), ToyLayouts(kToy), WorkerId(w), 1));
  }
  auto made = transports(needs);
  EXPECT_TRUE(made.ok()) << made.status();
  std::vector<std::unique_ptr<Engine>> ring;
  for (int w = 0; w < 2; ++w) {
    ring.push_back(MakeEngine(std::move((*made)[w]), w, kToy, wait_timeout));
  }
  return ring;
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
  EXPECT_EQ(copies.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(copies.status().message()), HasSubstr("\"F1\""));
  EXPECT_THAT(std::string(copies.status().message()), HasSubstr("\"F0 t0 l0 v-1\" (s0)"));
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
  // owner, but the gradient sums never come round, and so version 1 never exists.
  absl::Status status;
  for (int t = 0; t < 4 && status.ok(); ++t) {
    for (int j = 0; j < 2 && status.ok(); ++j) {
      status = ring[0]->BeginForward(StageId(j)).status();
      if (status.ok()) status = ring[0]->EndForward(StageId(j), MakeHeapBuffer(64));
    }
    for (int j = 1; j >= 0 && status.ok(); --j) {
      status = ring[0]->BeginBackward(StageId(j)).status();
      if (status.ok()) status = ring[0]->EndBackward(StageId(j), {});
    }
    if (status.ok()) status = ring[0]->EndMicroBatch({0.0});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 0 waited"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("to start \"F"));
  // The other worker learns why.
  absl::Status other = ring[1]->BeginForward(StageId(0)).status();
  if (other.ok()) other = ring[1]->EndForward(StageId(0), MakeHeapBuffer(64));
  for (int i = 0; i < 200 && ring[1]->status().ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(ring[1]->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(ring[1]->status().message()), HasSubstr("worker 0"));
}

TEST_P(EngineFailureTest, AWorkerThatLeavesIsNamedByTheOther) {
  auto ring = MakeRing(Transports());
  ring[1].reset();  // without Finish
  absl::Status status;
  for (int i = 0; i < 500 && status.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = ring[0]->status();
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1"));
  EXPECT_EQ(ring[0]->BeginForward(StageId(0)).status(), status);
}

TEST_P(EngineFailureTest, AnAbortReachesEveryWorkerAndTheFirstOneStays) {
  auto ring = MakeRing(Transports());
  ring[0]->Abort(absl::DataLossError("the first"));
  ring[0]->Abort(absl::InternalError("the second"));
  EXPECT_EQ(ring[0]->status().message(), "the first");
  absl::Status status;
  for (int i = 0; i < 500 && status.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = ring[1]->status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the first"));
}

TEST_P(EngineFailureTest, FinishingEarlyNamesWhatIsLeft) {
  auto ring = MakeRing(Transports());
  const absl::Status status = ring[0]->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"F0 t0 l0 v-1\""));
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineFailureTest, testing::Values("local", "shm"));

TEST(EngineCreateTest, RefusesLayoutsThatAreNotThePlans) {
  EngineOptions options{.plan = ToyPlan({.stages = 2}), .layouts = ToyLayouts({.stages = 3})};
  EXPECT_EQ(Engine::Create(std::move(options)).status().code(), absl::StatusCode::kInvalidArgument);
  EngineOptions other{.plan = ToyPlan({.stages = 2}),
                      .layouts = ToyLayouts({.stages = 2, .width = 99})};
  EXPECT_THAT(std::string(Engine::Create(std::move(other)).status().message()),
              HasSubstr("stage 0"));
}

TEST(EngineCreateTest, SeveralWorkersNeedATransport) {
  EngineOptions options{.plan = ToyPlan(kToy), .layouts = ToyLayouts(kToy)};
  EXPECT_EQ(Engine::Create(std::move(options)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringzero
