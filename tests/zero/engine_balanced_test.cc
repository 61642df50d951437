// Balanced sum windows: the engine gives the bits of their own plain loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "sharding/memory_forecast.h"
#include "sharding/schedule.h"
#include "sharding/verify.h"
#include "tests/zero/toy_balanced.h"
#include "tests/zero/toy_ring.h"
#include "zero/long_hops.h"
#include "zero/optimizer_state.h"

namespace ringzero {
namespace {

constexpr std::chrono::microseconds kMaxDelay(300);

ToyOptions Balanced(int workers, int slack) {
  ToyOptions o{.workers = workers, .stages = workers, .iterations = 5, .slack = slack};
  o.sum_windows = SumWindows::kBalanced;
  return o;
}

ToyResult ExpectReferenceBits(const ToyOptions& o,
                              const MakeTransports& transports = LocalTransports()) {
  SCOPED_TRACE(absl::StrCat("N ", o.workers, " slack ", o.slack, " optimizer ",
                            int(o.optimizer.type), " tied ", o.tied, " frozen ", o.frozen_prefix,
                            " evaluate ", o.evaluation.every, " collect ", o.collection.every));
  const absl::StatusOr<ToyResult> ring = RunToyRing(o, transports);
  EXPECT_TRUE(ring.ok()) << ring.status();
  if (!ring.ok()) return {};
  const ToyResult reference = RunBalancedToyReference(o);
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
  return *ring;
}

TEST(EngineBalancedTest, TwoWorkersTrain) { ExpectReferenceBits(Balanced(2, 0)); }

TEST(EngineBalancedTest, BitsOfEveryOptimizerAndSize) {
  using Type = OptimizerOptions::Type;
  int number = 0;
  for (int n = 1; n <= 5; ++n) {
    for (const int slack : {0, 1}) {
      for (const Type type :
           {Type::kSgd, Type::kAdamW, Type::kAdam, Type::kLion, Type::kAdagrad, Type::kLamb}) {
        ToyOptions o = Balanced(n, slack);
        o.optimizer.type = type;
        o.optimizer.sgd.momentum = 0.9;
        o.iterations = 1 + ++number % 6;
        o.pending = 1 + number % 2;
        o.stagger = number % 3 == 0;
        o.retain = number % 4 == 1 ? 1 : 0;
        o.tied = number % 5 == 0;
        o.frozen_prefix = number % 7 == 0 && n > 1 && !o.tied ? 1 : 0;
        if (number % 2 == 0) o.evaluation = {.every = 2, .laps = 2};
        if (number % 3 != 1) o.collection = {.every = 1, .worker = WorkerId(number % n)};
        if (number % 4 == 0) {
          o.clipping = Clipping::kPerStage;
          o.optimizer.max_norm = 0.3;
        }
        const MakeTransports transports = number % 3 == 0   ? LocalTransports()
                                          : number % 3 == 1 ? ShmTransports()
                                                            : LaneTransports();
        ExpectReferenceBits(o,
                            number % 2 == 0 ? Delayed(transports, number, kMaxDelay) : transports);
      }
    }
  }
}

// The few long hops that there are, at the beginning, for evaluations and collections, in one FIFO.
TEST(EngineBalancedTest, BitsWithAllLongHopsInOneOrder) {
  for (const int n : {2, 4}) {
    ToyOptions o = Balanced(n, n / 4);
    o.evaluation = {.every = 2, .laps = 1};
    o.collection = {.every = 2, .worker = WorkerId(n - 1)};
    const Plan plan = ToyPlan(o);
    const absl::StatusOr<int> window = ChooseWindow(plan, Merging::kLongHops);
    ASSERT_TRUE(window.ok()) << window.status();
    o.window = *window;
    ExpectReferenceBits(o, LaneTransportsWithLongHops(
                               {.order = [plan](WorkerId self) { return LongHopsOf(plan, self); },
                                .word_kinds = {static_cast<uint8_t>(Channel::kToken)}}));
  }
}

TEST(EngineBalancedTest, IsAnotherTrainingThanByIterations) {
  for (const int slack : {0, 1}) {
    ToyOptions o = Balanced(3, slack);
    const ToyResult balanced = RunBalancedToyReference(o);
    o.sum_windows = SumWindows::kIteration;
    EXPECT_NE(RunToyReference(o).parameters, balanced.parameters);
  }
  EXPECT_NE(RunBalancedToyReference(Balanced(3, 0)).parameters,
            RunBalancedToyReference(Balanced(3, 1)).parameters);
  // With one worker there is one window: plain training.
  ToyOptions alone = Balanced(1, 0);
  const ToyResult balanced = RunBalancedToyReference(alone);
  alone.sum_windows = SumWindows::kIteration;
  EXPECT_EQ(RunToyReference(alone), balanced);
}

// What is left out at the end of a run is in the sums of a longer one.
TEST(EngineBalancedTest, ALongerRunMakesTheSameVersions) {
  ToyOptions o = Balanced(4, 1);
  o.optimizer.type = OptimizerOptions::Type::kAdamW;
  o.collection.every = 1;
  const std::vector<float> shorter = ExpectReferenceBits(o).collected;
  o.iterations += 3;
  std::vector<float> longer = ExpectReferenceBits(o).collected;
  ASSERT_GT(longer.size(), shorter.size());
  longer.resize(shorter.size());
  EXPECT_EQ(longer, shorter);
}

TEST(EngineBalancedTest, SendsThreeTimesTheModelPerHop) {
  for (const int n : {2, 3, 4}) {
    for (const int slack : {0, 1}) {
      ToyOptions o = Balanced(n, slack);
      int64_t parameters = 0, sums = 0;
      for (const int iterations : {2, 6}) {
        o.iterations = iterations;
        const absl::StatusOr<ToyResult> ring = RunToyRing(o, LocalTransports());
        ASSERT_TRUE(ring.ok()) << ring.status();
        parameters = ring->parameter_bytes_sent - parameters;
        sums = ring->sum_bytes_sent - sums;
        EXPECT_EQ(ring->bytes_copied, 0);
      }
      const StageLayout layout = ToyLayouts(o)[0];  // of every stage
      EXPECT_EQ(parameters, 4 * 2 * (n - 1) * n * layout.parameter_bytes);
      EXPECT_EQ(sums, 4 * (n - 1) * n * layout.sum_bytes);
    }
  }
}

TEST(EngineBalancedTest, AllocatesWhatTheForecastSays) {
  for (const int n : {1, 2, 4}) {
    ToyOptions o = Balanced(n, 1);
    o.width = 100;
    for (const MakeTransports& transports : {LocalTransports(), ShmTransports()}) {
      const absl::StatusOr<ToyResult> run = RunToyRing(o, transports);
      ASSERT_TRUE(run.ok()) << run.status();
      const auto forecast = ForecastMemory(ToyPlan(o), {});
      ASSERT_TRUE(forecast.ok()) << forecast.status();
      for (int w = 0; w < n; ++w) {
        EXPECT_EQ(run->memory[w].masters, forecast->workers[w].masters);
        EXPECT_EQ(run->memory[w].versions, forecast->workers[w].versions);
        EXPECT_EQ(run->memory[w].sums, forecast->workers[w].sums);
        EXPECT_LE(run->memory[w].gradients, forecast->workers[w].gradients);
        EXPECT_EQ(forecast->workers[w].sums, (w == 0 ? n : 1) * ToyLayouts(o)[0].sum_bytes);
      }
    }
  }
}

TEST(EngineBalancedTest, RefusesAnotherOwner) {
  Plan plan = ToyPlan(Balanced(2, 1));
  plan.window = 2;
  std::swap(plan.stages[0].owner, plan.stages[1].owner);
  const auto engine = Engine::Create({.plan = plan, .layouts = ToyLayouts(Balanced(2, 1))});
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()),
              testing::HasSubstr("sum_windows balanced needs worker 0 as owner of stage 0"));
}

}  // namespace
}  // namespace ringzero
