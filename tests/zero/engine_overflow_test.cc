// Overflows: an iteration whose sums are not finite updates nothing, on no worker, and the loss
// scale follows from it; the bits of one sequential loop, which finds its overflows itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"
#include "zero/precision.h"

namespace ringzero {
namespace {

constexpr std::chrono::microseconds kMaxDelay(300);
constexpr ValueType kFp16 = ValueType::kFp16, kBf16 = ValueType::kBf16;

ToyOptions Scaled(int workers, int stages, Rule rule) {
  ToyOptions o{.workers = workers, .stages = stages, .iterations = 9, .rule = rule, .slack = 0};
  o.precision = {.compute = kFp16, .parameters = kFp16, .skip_overflows = true};
  o.precision.loss_scale = {
      .initial = 256, .dynamic = true, .window = 2, .hysteresis = 1, .minimum = 1};
  o.optimizer.type = OptimizerOptions::Type::kAdamW;
  o.optimizer.learning_rate = 0.01;
  // Another rate for each update: those that are skipped don't count.
  o.optimizer.curve.type = RateCurve::Type::kWarmup;
  o.optimizer.curve.warmup.updates = 8;
  return o;
}

TEST(EngineOverflowTest, BitsOfEveryRuleAndShape) {
  int runs = 0;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (int n = 1; n <= 4; ++n) {
      for (const int s : {1, n + 1, 2 * n}) {
        ToyOptions o = Scaled(n, s, rule);
        o.laps = 1 + runs % 2;
        o.zero_stage = runs % 5 == 4 ? 3 : runs % 5;
        o.stagger = rule != Rule::kDp && runs % 3 == 0;
        if (rule != Rule::kDp) o.warmup_updates = runs % 6;
        o.first_iteration = runs % 4 == 3 ? 1 + runs % 7 : 0;
        if (runs % 3 == 1) o.evaluation = {.every = 2, .laps = 1};
        if (runs % 4 == 2) o.collection = {.every = 2, .worker = WorkerId(runs % n)};
        const int batch = n * o.laps;
        // The first and the last iteration, two in a row, any stage, any micro-batch.
        o.overflows = {{Iteration(0), StageId(runs % s), runs % batch},
                       {Iteration(3), StageId(s - 1), 0},
                       {Iteration(4), StageId(0), batch - 1},
                       {Iteration(8), StageId((runs + 1) % s), (runs + 1) % batch}};
        const MakeTransports transports = TransportsOfRun(runs);
        ExpectReferenceBits(o, runs % 2 == 0 ? Delayed(transports, runs, kMaxDelay) : transports);
        EXPECT_EQ(RunToyReference(o).skipped, 4);
        ++runs;
      }
    }
  }
}

// What a lag of 2 under the cdp rules, and of 1 in dp, leads to.
TEST(EngineOverflowTest, TheScaleThatTheReferenceTrainsWith) {
  ToyOptions o = Scaled(2, 4, Rule::kDp);
  o.overflows = {{Iteration(1), StageId(2), 1}};
  EXPECT_EQ(RunToyReference(o).scales,
            (std::vector<double>{256, 256, 128, 128, 128, 256, 256, 512, 512}));
  o.rule = Rule::kCdpV1;
  EXPECT_EQ(RunToyReference(o).scales,
            (std::vector<double>{256, 256, 256, 128, 128, 128, 256, 256, 512}));
  o.warmup_updates = 3;  // iteration 2 is of dp, and has seen what iteration 3 has
  EXPECT_EQ(RunToyReference(o).scales,
            (std::vector<double>{256, 256, 128, 128, 128, 128, 256, 256, 512}));
}

// Without an injection: 2^24 times a gradient is too much for fp16. The scale comes down until it
// is not, and then training goes on.
TEST(EngineOverflowTest, AScaleThatIsTooLargeComesDown) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    ToyOptions o = Scaled(3, 4, rule);
    o.iterations = 20;
    o.precision.loss_scale.initial = 1 << 24;
    o.precision.loss_scale.window = 100;
    ExpectReferenceBits(o, LocalTransports());
    const ToyResult reference = RunToyReference(o);
    EXPECT_GT(reference.skipped, 2);
    EXPECT_LT(reference.skipped, 20);
  }
}

TEST(EngineOverflowTest, WithClippingAndOtherTypes) {
  for (const Clipping clipping : {Clipping::kExact, Clipping::kPerStage}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ToyOptions o = Scaled(3, 5, rule);
      o.clipping = clipping;
      o.optimizer.max_norm = 0.02;
      o.precision.sums = kBf16;
      o.overflows = {{Iteration(2), StageId(1), 2}};
      ExpectReferenceBits(o, LocalTransports());
      // bf16, whose gradients are not scaled.
      o.precision = {.compute = kBf16, .parameters = kBf16, .skip_overflows = true};
      ExpectReferenceBits(o, ShmTransports());
    }
  }
}

// A fixed scale stays, and overflows are skipped all the same; fp32 versions, which are their own
// masters.
TEST(EngineOverflowTest, AFixedScaleAndFp32) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int every : {0, 1}) {
      ToyOptions o = Scaled(2, 4, rule);
      o.precision = {.skip_overflows = true};
      o.precision.loss_scale.initial = 8;
      o.collection.every = every;
      o.overflows = {{Iteration(0), StageId(0), 0}, {Iteration(5), StageId(3), 1}};
      ExpectReferenceBits(o, LocalTransports());
      EXPECT_EQ(RunToyReference(o).scales, std::vector<double>(9, 8.0));
    }
  }
}

TEST(EngineOverflowTest, EndsWhereTheScaleCannotBeLowered) {
  ToyOptions o = Scaled(3, 4, Rule::kCdpV1);
  o.precision.loss_scale.minimum = 256;
  o.overflows = {{Iteration(2), StageId(1), 0}};
  const absl::StatusOr<ToyResult> ring = RunToyRing(o, LocalTransports());
  EXPECT_THAT(ring, Says("gradients of iteration 2 are not finite, and the loss scale is already "
                         "256, fp16.min_loss_scale"));
}

TEST(EngineOverflowTest, PlansThatCannotBe) {
  ToyOptions o = Scaled(2, 4, Rule::kCdpV2);
  Plan plan = ToyPlan(o);
  plan.strict = false;
  EXPECT_THAT(CheckPlan(plan), Says("skipping overflows with cdp_v2 needs its strict form"));
  plan = ToyPlan(o);
  plan.clipping = Clipping::kPrevious;
  EXPECT_THAT(CheckPlan(plan), Says("clip by that"));
  o.precision.skip_overflows = false;
  EXPECT_THAT(RunToyRing(o, LocalTransports()),
              Says("a dynamic loss scale needs a plan that skips overflows"));
}

TEST(LossScaleTest, CountsTheUpdatesThatWereMade) {
  LossScale scale({.initial = 4}, {.lag = 2});
  const std::vector<bool> overflows = {true, false, true, true, false};
  for (int t = 0; t < 5; ++t) ASSERT_TRUE(scale.Note(t, overflows[t]).ok());
  EXPECT_EQ(scale.history().skipped, 3);
  for (int t = 1; t < 5; ++t) EXPECT_EQ(scale.Overflowed(t), overflows[t]) << t;
  EXPECT_EQ(scale.UpdatesBefore(3), 1);
  EXPECT_EQ(scale.UpdatesBefore(5), 2);
  EXPECT_EQ(scale.Of(6), 4) << "it is fixed";
}

}  // namespace
}  // namespace ringzero
