#include "sharding/study/cost_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// A profile with as many layers as the plan has stages, a layer each.
CostProfile ProfileOf(const Plan& plan, const StageTicks& each) {
  CostProfile profile;
  for (const StagePlan& stage : plan.stages) profile.layers.push_back({stage.name, each});
  return profile;
}

Plan LayeredPlan(const PlanShape& shape) {
  Plan plan = MakeResolvedPlan(shape);
  for (int j = 0; j < plan.stage_count(); ++j) {
    plan.stages[j].first_layer = j;
    plan.stages[j].end_layer = j + 1;
  }
  return plan;
}

TEST(CostProfileTest, AStageTakesWhatItsLayersTake) {
  Plan plan = LayeredPlan({.workers = 2, .stages = 2});
  plan.stages[0].end_layer = 2;
  plan.stages[1].first_layer = 2;
  plan.stages[1].end_layer = 3;
  const CostProfile profile{
      .layers = {{"a", {1, 2, 3, 4}}, {"b", {10, 20, 30, 40}}, {"c", {100, 200, 300, 400}}},
      .lap_nanoseconds = 5,
      .message_nanoseconds = 6};
  RZ_ASSIGN(const auto speed, TicksOf(profile, plan));
  EXPECT_EQ(speed.stage_ticks[0].forward, 11);
  EXPECT_EQ(speed.stage_ticks[0].backward, 22);
  EXPECT_EQ(speed.stage_ticks[0].add, 33);
  EXPECT_EQ(speed.stage_ticks[1].update, 400);
  EXPECT_EQ(speed.lap_ticks, 5);
  EXPECT_EQ(speed.message_ticks, 6);
}

TEST(CostProfileTest, RefusesAnotherModelsLayers) {
  const Plan plan = LayeredPlan({.workers = 2, .stages = 3});
  CostProfile profile = ProfileOf(plan, {1, 1, 1, 1});
  profile.layers.pop_back();
  const auto speed = TicksOf(profile, plan);
  EXPECT_EQ(speed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(speed, Says("wanted the times of 3 layers, found 2"));
}

// Alone, with nothing that is sent: a step is the sum of all.
TEST(ForecastStepTest, OneWorkerDoesOneThingAfterTheOther) {
  const Plan plan = LayeredPlan({.workers = 1, .stages = 4, .rule = Rule::kDp});
  CostProfile profile = ProfileOf(plan, {100, 200, 10, 50});
  profile.lap_nanoseconds = 7;
  SimulationOptions speed = *TicksOf(profile, plan);
  RZ_ASSIGN(const auto step, ForecastStep(plan, speed));
  // The last add and update, of stage 0, are in the way of its next forward.
  EXPECT_NEAR(1e9 * step.seconds, 4 * 300 + 7 + 60, 8);
  EXPECT_GT(step.waits.update, 0);
}

// What two workers do on one core takes twice as long, and the waits of the others are gone.
TEST(ForecastStepTest, CoresAreShared) {
  const Plan plan = LayeredPlan({.workers = 2, .stages = 4, .rule = Rule::kCdpV1});
  SimulationOptions speed = *TicksOf(ProfileOf(plan, {1000, 2000, 100, 500}), plan);
  RZ_ASSIGN(const auto apart, ForecastStep(plan, speed));
  speed.cores = 1;
  RZ_ASSIGN(const auto together, ForecastStep(plan, speed));
  // Each computes 12,000; adds and updates take 2 x 400 and 2,000 of the shared core.
  EXPECT_NEAR(1e9 * apart.seconds, 12000, 600);
  EXPECT_NEAR(1e9 * together.seconds, 2 * 12000 + 2 * 400 + 2000, 1200);
}

TEST(ForecastStepTest, SharesAddUpToTheStep) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    const Plan plan = LayeredPlan({.workers = 4, .stages = 8, .rule = rule});
    SimulationOptions speed = *TicksOf(ProfileOf(plan, {1000, 2000, 100, 500}), plan);
    speed.message_ticks = 20;
    speed.latency_ticks = 50;
    speed.cores = 2;
    RZ_ASSIGN(const auto step, ForecastStep(plan, speed));
    const auto& waits = step.waits;
    EXPECT_NEAR(
        step.computing + waits.parameters + waits.gradient_sums + waits.update + waits.token, 1,
        0.05)
        << ToString(rule);
    EXPECT_GE(step.hidden_share, 0);
    EXPECT_LE(step.hidden_share, 1);
    EXPECT_FALSE(step.channels.empty());
  }
}

TEST(EstimateTicksTest, CountsFlopsAndBytes) {
  Plan plan = LayeredPlan({.workers = 2, .stages = 2});
  plan.stages[0].forward_cost = 3000;
  plan.stages[0].backward_cost = 6000;
  plan.stages[0].parameter_bytes = 100;
  plan.stages[0].sum_bytes = 200;
  plan.stages[1].sum_bytes = 0;
  const SimulationOptions speed =
      EstimateTicks(plan, {1000, 0}, {.flops_per_second = 1e9, .bytes_per_second = 2e9});
  EXPECT_EQ(speed.stage_ticks[0].forward, 3000);
  EXPECT_EQ(speed.stage_ticks[0].backward, 6000);
  EXPECT_EQ(speed.stage_ticks[0].add, 300);
  EXPECT_EQ(speed.stage_ticks[0].update, (200 + 2 * 100 + 2 * 1000) / 2);
  EXPECT_EQ(speed.stage_ticks[1].update, 0);
}

}  // namespace
}  // namespace ringzero
