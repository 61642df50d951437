// Clipping by a model's gradient norm: the reference's bits, and torch's clip_grad_norm_.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/reference_trainer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

TrainingTask Clipped(TrainingTask task) {
  task.optimizer.type = OptimizerOptions::Type::kSgd;
  task.optimizer.learning_rate = 0.1;
  task.optimizer.sgd.momentum = 0.9;
  task.optimizer.max_norm = 0.2;
  return task;
}

TEST(ClippingTest, BitsOfTheReference) {
  int runs = 0;
  for (const TrainingTask& task : {Clipped(GptTask()), Clipped(ConvTask())}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ExpectReferenceBits(task, PlanTask(task, {.workers = 2 + runs % 2,
                                                .zero_stage = runs % 4,
                                                .laps = 1 + runs % 2,
                                                .rule = rule,
                                                .slack = 0,
                                                .strict = rule == Rule::kCdpV2,
                                                .clipping = Clipping::kExact,
                                                .stages = 4,
                                                .iterations = 4}));
      ++runs;
    }
  }
}

// In dp with one worker an ordinary loop with clip_grad_norm_ comes to the same.
TEST(ClippingTest, IsThatOfTorch) {
  const TrainingTask task = Clipped(GptTask());
  RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.workers = 1,
                                                       .laps = 2,
                                                       .rule = Rule::kDp,
                                                       .clipping = Clipping::kExact,
                                                       .stages = 3,
                                                       .iterations = 6}));
  RZ_ASSIGN(const TrainingResult ring, RunRing(task, planned));
  TrainingTask unclipped = task;
  const TrainingResult torchs = TrainOrdinaryLoop(task, 2, 6);
  unclipped.optimizer.max_norm = 0;
  const TrainingResult plain = TrainOrdinaryLoop(unclipped, 2, 6);
  double apart = 0, without = 0, size = 0;  // sums of squares
  for (const auto& [name, values] : torchs.parameters) {
    const std::vector<float>& ours = ring.parameters.at(name);
    const std::vector<float>& others = plain.parameters.at(name);
    ASSERT_EQ(ours.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      apart += std::pow(double(ours[i]) - values[i], 2);
      without += std::pow(double(others[i]) - values[i], 2);
      size += std::pow(double(values[i]), 2);
    }
  }
  EXPECT_LT(std::sqrt(apart / size), 1e-6);
  EXPECT_GT(std::sqrt(without / size), 1e-3) << "it clips";
}

}  // namespace
}  // namespace ringzero
