// Balanced sum windows with LibTorch: the ring gives the bits of their own sequential reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/support/balanced_reference.h"
#include "tests/support/ring_runner.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

PlanRequest Balanced(int workers, int slack) {
  PlanRequest request{.workers = workers, .rule = Rule::kCdpV2, .slack = slack, .iterations = 4};
  request.sum_windows = SumWindows::kBalanced;
  return request;
}

void ExpectBits(const TrainingTask& task, PlanRequest request, const MakeTransports& transports) {
  request.optimizer = task.optimizer;
  absl::StatusOr<PlannedTask> planned = PlanTask(task, request);
  ASSERT_TRUE(planned.ok()) << planned.status();
  ASSERT_TRUE(UseSmallestWindow(*planned).ok());
  SCOPED_TRACE(PlanToString(planned->plan()));
  EXPECT_EQ(planned->plan().stage_count(), request.workers);
  const absl::StatusOr<TrainingResult> ring = RunRing(task, *planned, {.transports = transports});
  ASSERT_TRUE(ring.ok()) << ring.status();
  const TrainingResult reference = TrainBalancedReference(task, planned->plan());
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
}

TEST(BalancedBitsTest, EqualTheirOwnReference) {
  int number = 0;
  for (TrainingTask task : {MlpTask(6), ConvTask(), GptTask(), LstmTask()}) {
    for (const int slack : {0, 1}) {
      for (const auto type : {OptimizerOptions::Type::kSgd, OptimizerOptions::Type::kAdamW}) {
        task.optimizer.type = type;
        task.optimizer.sgd.momentum = 0.9;
        const int workers = std::min(2 + number % 3, static_cast<int>(task.layers.size()));
        PlanRequest request = Balanced(workers, slack);
        if (number % 2 == 0) request.evaluation = {.every = 2, .laps = 1};
        if (number % 3 == 0) request.collection = {.every = 2, .worker = WorkerId(1)};
        request.stagger = number % 4 == 3;
        const MakeTransports transports = number % 2 == 0 ? LocalTransports() : ShmTransports();
        ExpectBits(task, request, Delayed(transports, ++number, std::chrono::microseconds(300)));
      }
    }
  }
}

TEST(BalancedBitsTest, In16Bits) {
  TrainingTask task = GptTask();
  task.optimizer.type = OptimizerOptions::Type::kAdamW;
  task.precision = {.compute = ValueType::kBf16, .parameters = ValueType::kBf16};
  PlanRequest request = Balanced(3, 1);
  request.collection = {.every = 2, .worker = WorkerId(2)};
  ExpectBits(task, request, ShmTransports());
}

TEST(BalancedBitsTest, NeedsAStageForEachWorker) {
  const TrainingTask task = MlpTask(6);
  PlanRequest request = Balanced(2, 1);
  request.stages = 3;
  const absl::StatusOr<PlannedTask> planned = PlanTask(task, request);
  EXPECT_EQ(planned.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(planned.status().message()),
              testing::HasSubstr("sum_windows balanced needs as many stages as workers"));
}

}  // namespace
}  // namespace ringzero
