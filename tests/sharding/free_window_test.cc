// Windows with which messages hardly hold each other up.
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "sharding/check/verify.h"
#include "sharding/rules/schedule.h"
#include "sharding/study/cost_profile.h"
#include "sharding/study/simulate.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

constexpr int kNoLimit = 10000;

double StepWith(Plan plan, int window) {
  plan.window = window;
  const absl::StatusOr<StepForecast> step = ForecastStep(plan, {});
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? step->seconds : 0;
}

TEST(FreeWindowTest, AccumulationOnManyWorkersIsNotHeldUp) {
  // In stage 0 of ZeRO what worker N-1 sends for worker 0's next lap comes a lap early, and holds its
  // slots.
  for (const auto& [rule, stretched] :
       {std::pair("dp zero=0", 1.2), std::pair("cdp_v1", 1.05), std::pair("cdp_v2", 1.05)}) {
    SCOPED_TRACE(rule);
    const Plan plan = MakeTestPlan(Shape(absl::StrCat("16x16 backward_twice laps=2 ", rule)));
    RZ_ASSIGN(const int bound, ChooseWindow(plan));
    RZ_ASSIGN(const int free, ChooseFreeWindow(plan));
    const double shortest = StepWith(plan, kNoLimit);
    EXPECT_GT(StepWith(plan, bound), stretched * shortest);
    EXPECT_LE(StepWith(plan, free), 1.01 * shortest);
    EXPECT_GT(StepWith(plan, free - 1), 1.01 * shortest) << "a smaller window would do";
  }
}

// In dp laps end at owners: what worker N-1 sent for worker 0's next lap would come a lap early, and
// hold its slots.
TEST(FreeWindowTest, LapsOfDpNeedNoMoreThanTheLeastWindow) {
  for (const char* shape : {"16x16", "8x8", "8x16", "4x4", "3x9 zero=2", "5x10 zero=1"}) {
    for (const int laps : {2, 3, 4}) {
      const Plan plan = MakeTestPlan(Shape(absl::StrCat(shape, " dp backward_twice laps=", laps)));
      RZ_ASSIGN(const int bound, ChooseWindow(plan));
      EXPECT_EQ(bound, LeastWindow(plan)) << shape << " " << laps;
      EXPECT_LE(StepWith(plan, bound), 1.05 * StepWith(plan, kNoLimit)) << shape << " " << laps;
    }
  }
}

// One slot fewer would cost less than a tenth of a step, but more than 1 %.
TEST(FreeWindowTest, AFewPerCentAreWorthASlot) {
  const Plan plan = MakeTestPlan({.workers = 12,
                                  .stages = 12,
                                  .laps = 2,
                                  .rule = Rule::kCdpV1,
                                  .costs = Costs::kBackwardTwice});
  RZ_ASSIGN(const int free, ChooseFreeWindow(plan));
  const double shortest = StepWith(plan, kNoLimit);
  EXPECT_LE(StepWith(plan, free), 1.01 * shortest);
  EXPECT_GT(StepWith(plan, free - 1), 1.01 * shortest);
  EXPECT_LT(StepWith(plan, free - 1), 1.1 * shortest);
}

TEST(FreeWindowTest, WhereSlotsAreEnoughOrGivenItIsTheOther) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    Plan plan = MakeTestPlan({.workers = 4, .stages = 8, .rule = rule});
    RZ_ASSIGN(const int free, ChooseFreeWindow(plan));
    EXPECT_EQ(free, *ChooseWindow(plan)) << ToString(rule);
    plan.window = free + 3;
    EXPECT_EQ(*ChooseFreeWindow(plan), free + 3);
  }
}

}  // namespace
}  // namespace ringzero
