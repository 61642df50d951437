// One run on symbols refuses every program that means something else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sharding/check/verify.h"
#include "tests/sharding/given_programs.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

TEST(MeaningTest, ProgramsMeanWhatTheDefinitionsSay) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeResolvedPlan(shape);
    const std::vector<Program> programs = ProgramsOf(plan);
    for (uint64_t order = 0; order <= 3; ++order) {
      EXPECT_EQ(CheckMeaning(plan, programs, order), absl::OkStatus()) << Describe(shape);
    }
  }
}

class RandomPlansTest : public testing::TestWithParam<int> {};

// Every one of them is right, in a random order of its own.
TEST_P(RandomPlansTest, MeanWhatTheDefinitionsSay) {
  RandomShapes shapes(GetParam());
  const int plans = FullTier() ? 20000 : 60;
  int refused = 0;
  for (int checked = 0; checked < plans;) {
    const PlanShape shape = shapes.Next();
    Plan plan = MakeTestPlan(shape);
    if (!CheckPlan(plan).ok()) continue;  // options that exclude each other
    ++checked;
    const absl::StatusOr<int> window = ChooseWindow(plan);
    if (!window.ok()) {
      // A circle that no window breaks is refused: 2 of 200,000 have one (stagger, predict, strict
      // and exact clipping together).
      ASSERT_THAT(window.status(), Says("these wait for each other")) << Describe(shape);
      ++refused;
      continue;
    }
    plan.window = *window;
    ASSERT_EQ(CheckMeaning(plan, ProgramsOf(plan), checked), absl::OkStatus()) << Describe(shape);
  }
  EXPECT_LE(refused, plans / 1000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlansTest, testing::Range(1, 11));

}  // namespace
}  // namespace ringzero
