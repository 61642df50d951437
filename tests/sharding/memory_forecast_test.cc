// The forecast of plans whose answers can be counted by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sharding/memory/block_table.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

// Four stages of 100, 200, 300 and 400 bytes, whose sums have 10 bytes more and whose optimizer
// keeps twice the parameters. Stage j belongs to worker N-1 - j mod N.
Plan FourStages(int workers, Rule rule) {
  Plan plan{.workers = workers, .rule = rule, .window = 8, .hosts = {workers}};
  for (int j = 0; j < 4; ++j) {
    const int64_t bytes = 100 * (j + 1);
    plan.stages.push_back({.name = "s",
                           .first_layer = j,
                           .end_layer = j + 1,
                           .parameter_bytes = bytes,
                           .sum_bytes = bytes + 10,
                           .owner = WorkerId(workers - 1 - j % workers)});
  }
  return plan;
}

MemoryBytes HostBytes(const Plan& plan, bool join = false) {
  const auto memory =
      ForecastMemory(plan, {.moment_bytes = {200, 400, 600, 800}, .gradients_join_sums = join});
  EXPECT_TRUE(memory.ok()) << memory.status();
  return memory.ok() ? memory->host() : MemoryBytes();
}

TEST(MemoryForecastTest, EveryRuleAndNumberOfWorkers) {
  for (const int workers : {1, 2, 4}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      const MemoryBytes host = HostBytes(FourStages(workers, rule));
      EXPECT_EQ(host.masters, 1000);
      EXPECT_EQ(host.versions, rule == Rule::kDp ? 0 : 1000);
      EXPECT_EQ(host.moments, 2000);
      EXPECT_EQ(host.sums, 1040);
      EXPECT_EQ(host.gradients, workers * (310 + 410)) << "the two largest neighbours, everywhere";
      EXPECT_EQ(host.total(), host.masters + host.versions + 3040 + host.gradients);
    }
  }
}

TEST(MemoryForecastTest, PredictionsAreAThirdBuffer) {
  Plan plan = FourStages(2, Rule::kCdpV1);
  EXPECT_EQ(HostBytes(plan).versions, 1000);
  plan.predict = true;
  EXPECT_EQ(HostBytes(plan).versions, 2000);
  // With slack 0 the first worker has the third and fourth stage in time: θ alone, in place.
  plan.rule = Rule::kCdpV2;
  plan.slack = 0;
  EXPECT_EQ(HostBytes(plan).versions, 2 * (100 + 200));
}

TEST(MemoryForecastTest, WhoHoldsIt) {
  RZ_ASSIGN(const auto memory,
            ForecastMemory(FourStages(2, Rule::kCdpV2), {.moment_bytes = {1, 2, 4, 8}}));
  ASSERT_EQ(memory.workers.size(), 2u);
  EXPECT_EQ(memory.workers[0].masters, 200 + 400);
  EXPECT_EQ(memory.workers[1].versions, 100 + 300);
  EXPECT_EQ(memory.workers[0].moments, 2 + 8);
  EXPECT_EQ(memory.workers[0].sums, 1040) << "worker 0 begins all sums";
  EXPECT_EQ(memory.workers[1].sums, 0);
}

TEST(MemoryForecastTest, GradientsThatWait) {
  Plan plan = FourStages(4, Rule::kCdpV1);
  plan.pending = 2;
  EXPECT_EQ(HostBytes(plan).gradients, 4 * (210 + 310 + 410));
  EXPECT_EQ(HostBytes(plan, true).gradients, 3 * (210 + 310 + 410)) << "worker 0 has every sum";
  plan.laps = 2;
  EXPECT_EQ(HostBytes(plan, true).gradients, 4 * (210 + 310 + 410)) << "but not of later laps";
  plan.laps = 1;
  plan.pending = 9;
  EXPECT_EQ(HostBytes(plan).gradients, 4 * 1040) << "no more than there are";
  plan.pending = 1;
  for (int j = 0; j < 3; ++j) plan.stages[j].sum_bytes = 0;
  EXPECT_EQ(HostBytes(plan).gradients, 4 * 410);
  plan.iterations = 2;
  EXPECT_EQ(HostBytes(plan).gradients, 4 * 2 * 410) << "the next iteration's with it";
}

TEST(MemoryForecastTest, FrozenTiedAndRetainedStages) {
  Plan plan = FourStages(2, Rule::kCdpV2);
  const MemoryBytes all = HostBytes(plan);
  plan.retain = 2;  // a copy that is kept for the backward is a handle
  EXPECT_EQ(HostBytes(plan), all);
  plan.stages[0].last_use = StageId(3);  // tied: one unit, with its first stage
  EXPECT_EQ(HostBytes(plan), all);
  plan = FourStages(2, Rule::kCdpV2);
  plan.stages[0].sum_bytes = 0;
  plan.stages[0].has_backward = false;
  plan.stages[3].sum_bytes = 0;
  const MemoryBytes frozen = HostBytes(plan);
  EXPECT_EQ(frozen.masters, 1000);
  EXPECT_EQ(frozen.versions, 500) << "what never changes has one version";
  EXPECT_EQ(frozen.moments, 1000);
  EXPECT_EQ(frozen.sums, 520);
  EXPECT_EQ(frozen.gradients, 2 * 520);
}

TEST(MemoryForecastTest, WithoutExchangeEverybodyHasTheParameters) {
  Plan plan = FourStages(4, Rule::kCdpV2);
  plan.exchange = false;
  EXPECT_EQ(HostBytes(plan), (MemoryBytes{.masters = 4000, .gradients = 4 * 410}));
}

// Held copies are handles; what is not sharded is there as often as there are workers.
TEST(MemoryForecastTest, WhatZeroStagesShard) {
  Plan plan = FourStages(4, Rule::kCdpV2);
  const MemoryBytes three = HostBytes(plan);
  plan.zero_stage = 2;
  EXPECT_EQ(HostBytes(plan), three);
  plan.zero_stage = 1;
  EXPECT_EQ(HostBytes(plan), three) << "gradients go into their sums in every stage";
  plan.zero_stage = 0;
  MemoryBytes wanted = three;
  wanted.masters *= 4;
  wanted.versions *= 4;
  wanted.moments *= 4;
  EXPECT_EQ(HostBytes(plan), wanted);
  RZ_ASSIGN(const auto memory, ForecastMemory(plan, {}));
  EXPECT_EQ(memory.workers[0].sums, 1040) << "as many blocks as stages: each has its own";
  EXPECT_EQ(memory.workers[3].sums, 0);
}

// Sums that wait for the norm, one of a stage that its worker updates.
TEST(MemoryForecastTest, TakenSums) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1}) {
    Plan plan = FourStages(2, rule);
    MemoryBytes wanted = HostBytes(plan);
    plan.clipping = Clipping::kPrevious;
    EXPECT_EQ(HostBytes(plan), wanted);
    plan.clipping = Clipping::kExact;
    wanted.taken = 1040;
    EXPECT_EQ(HostBytes(plan), wanted);
    EXPECT_EQ(ForecastMemory(plan, {})->workers[0].taken, 210 + 410);
    plan.zero_stage = 0;
    EXPECT_EQ(HostBytes(plan).taken, 2 * 1040);
  }
}

TEST(MemoryForecastTest, Errors) {
  const auto memory = ForecastMemory(FourStages(2, Rule::kDp), {.moment_bytes = {1, 2}});
  EXPECT_THAT(memory, Says("wanted moment_bytes of 4 stages, found 2"));
}

TEST(MemoryForecastTest, Table) {
  RZ_ASSIGN(const auto memory,
            ForecastMemory(FourStages(1, Rule::kDp), {.moment_bytes = {200, 400, 600, 800}}));
  const std::string table = DescribeMemory(memory, 250);
  EXPECT_THAT(table, HasSubstr("moments               2000             8.00\n"));
  EXPECT_THAT(table, HasSubstr("total                 4760            19.04\n"));
}

}  // namespace
}  // namespace ringzero
