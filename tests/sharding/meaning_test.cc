// One run on symbols refuses every program that means something else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sharding/check/verify.h"
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

// Any plan that can be made, with small ones more often.
class RandomShapes {
 public:
  explicit RandomShapes(uint64_t seed) : random_(seed) {}

  PlanShape Next() {
    PlanShape shape;
    shape.workers = Small(1, 8);
    shape.stages = Small(1, 4 * shape.workers);
    shape.zero_stage = Chance(2) ? 3 : Draw(0, 3);
    shape.laps = Small(1, 3);
    shape.rule = static_cast<Rule>(Draw(0, 2));
    shape.slack = Draw(0, 2);
    shape.iterations = Draw(1, 4);
    shape.evaluate_every = Chance(3) ? Draw(1, 3) : 0;
    shape.evaluation_laps = Draw(1, 2);
    shape.collect_every = Chance(4) ? Draw(1, 2) : 0;
    if (Chance(3)) {
      shape.first_iteration = Draw(1, 6);
      shape.iterations += shape.first_iteration;
    }
    if (Chance(6)) shape.collect_versions = {Draw(1, shape.iterations)};
    shape.collector = Draw(0, shape.workers - 1);
    shape.statistics = Chance(3);
    shape.tied = Chance(4);
    shape.retain = shape.zero_stage == 3 && Chance(4) ? Draw(0, shape.stages) : 0;
    shape.pending = Draw(1, 3);
    shape.frozen = Chance(4) ? static_cast<Frozen>(Draw(1, 2)) : Frozen::kNone;
    shape.owners = static_cast<Owners>(Draw(0, 3));
    shape.costs = static_cast<Costs>(Draw(0, 2));
    shape.seed = random_();
    shape.clipping = static_cast<Clipping>(Draw(0, 3));
    shape.strict = shape.rule == Rule::kCdpV2 && Chance(3);
    shape.skip_overflows = Chance(4);
    shape.masters = Chance(3);
    shape.hosts = Chance(3) ? 0 : Draw(1, 4);
    if (shape.rule != Rule::kDp) {
      shape.predict = Chance(4);
      shape.stagger = Chance(3);
      if (Chance(3)) {
        shape.warmup_updates = Draw(1, 4 + shape.first_iteration);
        shape.iterations = std::max(shape.iterations, shape.warmup_updates + Draw(0, 3));
      }
    }
    return shape;
  }

 private:
  int Draw(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  int Small(int least, int most) { return Draw(least, Draw(least, most)); }
  bool Chance(int one_in) { return Draw(1, one_in) == 1; }

  std::mt19937_64 random_;
};

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
