// How an epoch's samples are dealt to micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sharding/rules/schedule.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::ElementsAre;

Plan PlanOf(int64_t per_epoch, int64_t micro_batch) {
  Plan plan = MakeTestPlan({.workers = 2, .laps = 2});
  plan.samples = {.per_epoch = per_epoch, .micro_batch = micro_batch};
  return plan;
}

std::vector<int64_t> Dealt(const Plan& plan, int iteration) {
  std::vector<int64_t> samples;
  for (int m = 0; m < plan.workers * plan.laps; ++m) {
    samples.push_back(SamplesOf(plan, Iteration(iteration), m));
  }
  return samples;
}

TEST(SamplesTest, TheLastBatchOfAnEpochIsFilledInOrder) {
  const Plan plan = PlanOf(17, 3);
  EXPECT_EQ(IterationsPerEpoch(plan), 2);
  EXPECT_THAT(Dealt(plan, 0), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(Dealt(plan, 1), ElementsAre(3, 2, 0, 0));
  EXPECT_THAT(Dealt(plan, 2), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(Dealt(plan, 5), ElementsAre(3, 2, 0, 0));
  EXPECT_EQ(WeightOf(plan, Iteration(1), 0), 1);
  EXPECT_EQ(WeightOf(plan, Iteration(1), 1), 2.0 / 3);
  EXPECT_EQ(WeightOf(plan, Iteration(1), 2), 0);
  EXPECT_EQ(DivisorOf(plan, Iteration(0)), 4);
  EXPECT_EQ(DivisorOf(plan, Iteration(1)), 5.0 / 3);
}

TEST(SamplesTest, AnEpochOfWholeBatchesHasNoOther) {
  const Plan plan = PlanOf(24, 3);
  EXPECT_EQ(IterationsPerEpoch(plan), 2);
  for (int t = 0; t < 5; ++t) EXPECT_THAT(Dealt(plan, t), ElementsAre(3, 3, 3, 3));
}

TEST(SamplesTest, EverySampleOfAnEpochOnce) {
  for (int64_t per_epoch = 1; per_epoch < 40; ++per_epoch) {
    const Plan plan = PlanOf(per_epoch, 5);
    int64_t all = 0;
    for (int t = 0; t < IterationsPerEpoch(plan); ++t) {
      int64_t iteration = 0;
      for (const int64_t samples : Dealt(plan, t)) iteration += samples;
      EXPECT_EQ(DivisorOf(plan, Iteration(t)), static_cast<double>(iteration) / 5);
      EXPECT_GT(SamplesOf(plan, Iteration(t), 0), 0);
      EXPECT_EQ(SamplesBefore(plan, Iteration(t)), all);
      all += iteration;
    }
    EXPECT_EQ(SamplesBefore(plan, Iteration(2 * static_cast<int>(IterationsPerEpoch(plan)))),
              2 * all);
    EXPECT_EQ(all, per_epoch);
  }
}

TEST(SamplesTest, WhereTheyAreNotCountedAllAreFull) {
  const Plan plan = PlanOf(0, 1);
  EXPECT_THAT(Dealt(plan, 7), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(WeightOf(plan, Iteration(7), 3), 1);
  EXPECT_EQ(DivisorOf(plan, Iteration(7)), 4);
}

TEST(SamplesTest, PlansParseBackAndNameWhatIsWrong) {
  const Plan plan = PlanOf(17, 3);
  RZ_ASSIGN(const auto parsed, ParsePlan(PlanToString(plan)));
  EXPECT_EQ(parsed.samples.per_epoch, 17);
  EXPECT_EQ(parsed.samples.micro_batch, 3);
  EXPECT_EQ(PlanToString(parsed), PlanToString(plan));
  EXPECT_THAT(CheckPlan(PlanOf(-1, 3)), Says("samples.per_epoch must be at least 0, found -1"));
  EXPECT_THAT(CheckPlan(PlanOf(1, 0)), Says("samples.micro_batch must be at least 1, found 0"));
}

}  // namespace
}  // namespace ringzero
