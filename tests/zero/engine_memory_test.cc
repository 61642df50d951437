// What engines allocate is what the plan's forecast says, category by category.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "sharding/memory/block_table.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {
namespace {

constexpr std::chrono::microseconds kMaxDelay(300);

void ExpectForecast(const ToyOptions& options, const MakeTransports& transports) {
  SCOPED_TRACE(absl::StrCat("N ", options.workers, " S ", options.stages, " K ", options.laps, " ",
                            ToString(options.rule), " zero ", options.zero_stage, " frozen ",
                            options.frozen_prefix, " tied ", options.tied, " retain ",
                            options.retain));
  RZ_ASSIGN(const ToyResult run, RunToyRing(options, transports));
  const std::vector<StageLayout> layouts = ToyLayouts(options);
  Plan plan = ToyPlan(options);
  RZ_ASSIGN(plan.window, SmallestWindow(plan));  // as RunToyRing
  RZ_ASSIGN(
      const auto forecast,
      ForecastMemory(plan, {.moment_bytes = MomentBytes(options.optimizer, layouts, plan.stages),
                            .scratch_bytes = ScratchBytes(options.optimizer, layouts)}));
  for (int w = 0; w < options.workers; ++w) {
    SCOPED_TRACE(absl::StrCat("worker ", w));
    const MemoryBytes &wanted = forecast.workers[w], &found = run.memory[w];
    EXPECT_EQ(found.masters, wanted.masters);
    EXPECT_EQ(found.versions, wanted.versions);
    EXPECT_EQ(found.moments, wanted.moments);
    EXPECT_EQ(found.sums, wanted.sums);
    // How many wait is a matter of timing; the unused parameters have none.
    EXPECT_LE(found.gradients, wanted.gradients);
    const int64_t one = options.width * static_cast<int64_t>(sizeof(float));
    EXPECT_GE(found.gradients, one);
  }
}

TEST(EngineMemoryTest, AllocatesWhatTheForecastSays) {
  int number = 0;
  for (const int workers : {1, 2, 4}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ToyOptions o{.workers = workers, .stages = 2 * workers, .iterations = 6, .rule = rule};
      o.width = 100;
      o.optimizer.type = OptimizerOptions::Type::kAdamW;
      for (o.zero_stage = 0; o.zero_stage <= 3; ++o.zero_stage) {
        o.hosts = {};
        ExpectForecast(o, LocalTransports());
        o.hosts = {o.workers};
        ExpectForecast(o, Delayed(ShmTransports(), 3, kMaxDelay));
        o.parameter_slots = 2;  // stage 3
        ExpectForecast(o, ShmTransports());
        o.parameter_slots = 0;
      }
      o.zero_stage = number++ % 4;
      o.optimizer.type = OptimizerOptions::Type::kSgd;
      o.laps = 2;
      o.retain = 1;
      o.tied = true;
      ExpectForecast(o, ShmTransports());
      o.optimizer.sgd.momentum = 0.9;
      o.optimizer.type = number % 2 == 0 ? OptimizerOptions::Type::kLamb : o.optimizer.type;
      o.frozen_prefix = 1;
      o.tied = false;
      ExpectForecast(o, Delayed(LocalTransports(), 5, kMaxDelay));
      o.optimizer.type = OptimizerOptions::Type::kSgd;
      o.predict = rule != Rule::kDp;
      o.slack = 0;
      ExpectForecast(o, ShmTransports());
      o.optimizer.type = OptimizerOptions::Type::kAdamW;
      o.staged_pieces = 2;
      ExpectForecast(o, ShmTransports());
      o.staged_pieces = 0;
    }
  }
}

}  // namespace
}  // namespace ringzero
