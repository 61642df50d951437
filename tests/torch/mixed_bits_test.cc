// Models that compute in bf16 and fp16: the ring gives the reference's bits, with fp32 masters.
#include <gtest/gtest.h>

#include <string>

#include "integrations/torch/models/models.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

constexpr ValueType kBf16 = ValueType::kBf16, kFp16 = ValueType::kFp16;
constexpr Precision kBf16Run{.compute = kBf16, .parameters = kBf16};
constexpr Precision kFp16Run{.compute = kFp16, .parameters = kFp16, .loss_scale = {.initial = 256}};

PlanRequest Request(Rule rule, int number) {
  PlanRequest request{.workers = 2 + number % 2, .laps = 1 + number % 2, .rule = rule};
  request.zero_stage = number % 4;
  request.iterations = 3;
  request.evaluation = {.every = 2, .laps = 1};
  request.collection = {.every = number % 2 == 0 ? 2 : 0};
  return request;
}

void ExpectBitsOfAllRules(TrainingTask task, const Precision& precision, int first) {
  task.precision = precision;
  int number = first;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    PlanRequest request = Request(rule, number++);
    request.optimizer = task.optimizer;
    ExpectReferenceBits(task, PlanTask(task, request));
  }
}

TEST(MixedBitsTest, Mlp) {
  ExpectBitsOfAllRules(MlpTask(4), kBf16Run, 0);
  ExpectBitsOfAllRules(MlpTask(4), kFp16Run, 1);
}

TEST(MixedBitsTest, TiedGpt) {
  ExpectBitsOfAllRules(GptTask(), kBf16Run, 2);
  ExpectBitsOfAllRules(GptTask(), kFp16Run, 3);
}

TEST(MixedBitsTest, OurGptWithDropout) {
  TrainingTask task = GptTask();
  const GptOptions gpt{.layers = 2, .dim = 8, .heads = 2, .vocab = 11, .seq = 5, .dropout = 0.25};
  task.layers = MakeGpt(gpt);
  ExpectBitsOfAllRules(task, kBf16Run, 0);
}

TEST(MixedBitsTest, BatchNormsStatisticsTravelInFp32) {
  ExpectBitsOfAllRules(ConvTask(), kBf16Run, 1);
}

TEST(MixedBitsTest, SumsInBf16) {
  Precision precision = kBf16Run;
  precision.sums = kBf16;
  ExpectBitsOfAllRules(MlpTask(4), precision, 2);
  // With a model that computes in fp32, too.
  ExpectBitsOfAllRules(GptTask(), {.sums = kBf16}, 0);
}

TEST(MixedBitsTest, TheLossScaleKeepsSmallGradients) {
  TrainingTask task = MlpTask(3);
  // Gradients of 1e-7 are below what fp16 has.
  const auto loss = task.loss;
  task.loss = [loss](const TensorList& outputs, const at::Tensor& target) {
    return loss(outputs, target) * 1e-7;
  };
  task.optimizer = {.type = OptimizerOptions::Type::kSgd, .learning_rate = 1e5};
  PlanRequest request{.workers = 2, .rule = Rule::kDp, .iterations = 2};
  request.optimizer = task.optimizer;
  task.precision = {.compute = kFp16, .parameters = kFp16};
  const auto moved = [&] {
    const absl::StatusOr<PlannedTask> planned = PlanTask(task, request);
    const absl::StatusOr<TrainingResult> result = RunRing(task, *planned);
    EXPECT_TRUE(result.ok()) << result.status();
    return result->parameters;
  };
  request.iterations = 0;
  const auto initial = moved();
  request.iterations = 2;
  EXPECT_EQ(moved(), initial);
  task.precision.loss_scale.initial = 65536;
  EXPECT_NE(moved(), initial);
}

// The scale that a run begins with is too large for this loss.
TEST(MixedBitsTest, AScaleThatIsTooLargeComesDown) {
  TrainingTask task = MlpTask(3);
  task.precision = {.compute = kFp16, .parameters = kFp16, .skip_overflows = true};
  task.precision.loss_scale = {.initial = 1 << 26, .dynamic = true, .hysteresis = 1};
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1}) {
    PlanRequest request{.workers = 2, .rule = rule, .iterations = 16};
    request.optimizer = task.optimizer;
    RZ_ASSIGN(const PlannedTask planned, PlanTask(task, request));
    ExpectReferenceBits(task, planned);
    const int skipped = TrainReference(task, planned.plan()).skipped;
    EXPECT_GT(skipped, 2);
    EXPECT_LT(skipped, 16);
  }
}

TEST(MixedBitsTest, ParametersTravelInTheTypeThatComputes) {
  TrainingTask task = MlpTask(2);
  task.precision = {.compute = ValueType::kFp32, .parameters = kBf16};
  const absl::StatusOr<PlannedTask> planned = PlanTask(task, {.workers = 2, .rule = Rule::kCdpV2});
  EXPECT_THAT(planned, Fails(absl::StatusCode::kInvalidArgument,
                             "parameters travel as bf16, but layers compute in fp32"));
}

}  // namespace
}  // namespace ringzero
