// Clipping gives the bits of one sequential loop that counts its norm itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"
#include "zero/gradient_sum.h"

namespace ringzero {
namespace {

constexpr std::chrono::microseconds kMaxDelay(300);

void ExpectClippedBits(const ToyOptions& options, const MakeTransports& transports) {
  ExpectReferenceBits(options, transports);
  // It does clip, and not by the same factor each time.
  ToyOptions unclipped = options;
  unclipped.clipping = Clipping::kOff;
  unclipped.strict = ToyPlan(options).strict;
  unclipped.optimizer.max_norm = 0;
  EXPECT_NE(RunToyReference(unclipped).parameters, RunToyReference(options).parameters);
}

ToyOptions Clipped(int workers, int stages, Rule rule, Clipping clipping) {
  ToyOptions o{.workers = workers, .stages = stages, .iterations = 5, .rule = rule, .slack = 0};
  o.clipping = clipping;
  o.optimizer.type = OptimizerOptions::Type::kSgd;
  o.optimizer.learning_rate = 0.1;
  o.optimizer.max_norm = 0.02;
  return o;
}

TEST(EngineClipTest, BitsOfEveryFormRuleAndShape) {
  int runs = 0;
  for (const Clipping clipping : {Clipping::kExact, Clipping::kPerStage, Clipping::kPrevious}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (int n = 1; n <= 4; ++n) {
        for (const int s : {1, n + 1, 2 * n}) {
          ToyOptions o = Clipped(n, s, rule, clipping);
          o.laps = 1 + runs % 2;
          o.zero_stage = runs % 5 == 4 ? 3 : runs % 5;
          o.stagger = rule != Rule::kDp && runs % 3 == 0;
          o.frozen_prefix = runs % 4 == 3 && s > 1 ? 1 : 0;
          o.strict = runs % 2 == 1;
          if (runs % 3 == 1) o.evaluation = {.every = 2, .laps = 1};
          if (runs % 4 == 2) o.collection = {.every = 2, .worker = WorkerId(runs % n)};
          const MakeTransports transports = TransportsOfRun(runs);
          ExpectClippedBits(o, runs % 2 == 0 ? Delayed(transports, runs, kMaxDelay) : transports);
          ++runs;
        }
      }
    }
  }
}

// After Finish worker 0 has the norms of the last iterations, of the whole ring, of a run of one
// iteration, too.
TEST(EngineClipTest, TheLastNormsReachWorkerZero) {
  int runs = 0;
  for (const Clipping clipping :
       {Clipping::kOff, Clipping::kExact, Clipping::kPerStage, Clipping::kPrevious}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (const int iterations : {1, 2, 5}) {
        ToyOptions o = Clipped(3, 4, rule, clipping);
        o.iterations = iterations;
        o.gradient_norms = true;
        o.strict = clipping == Clipping::kExact;
        o.zero_stage = runs % 4;
        if (clipping == Clipping::kOff) o.optimizer.max_norm = 0;
        SCOPED_TRACE(absl::StrCat(ToString(clipping), " ", ToString(rule), " ", iterations));
        const MakeTransports transports = TransportsOfRun(runs);
        RZ_ASSIGN(const ToyResult ring, RunToyRing(o, Delayed(transports, runs, kMaxDelay)));
        const std::vector<double> all = RunToyReference(o).norms;
        const size_t last = std::min<size_t>(3, all.size());
        ASSERT_EQ(ring.norms.size(), last);
        for (size_t i = 0; i < last; ++i) {
          EXPECT_NEAR(ring.norms[i] / all[all.size() - last + i], 1, 1e-6) << i;
        }
        ++runs;
      }
    }
  }
}

// In dp with N·K fixed all is the same for any N: also the norm, whose order is the model's.
TEST(EngineClipTest, OneResultForAnyNumberOfWorkers) {
  ToyOptions o = Clipped(1, 4, Rule::kDp, Clipping::kExact);
  o.laps = 4;
  const ToyResult one = RunToyReference(o);
  for (const int workers : {1, 2, 4}) {
    o.workers = workers;
    o.laps = 4 / workers;
    RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
    EXPECT_EQ(ring.parameters, one.parameters) << workers;
  }
}

// More values than a block, and many owned stages.
TEST(EngineClipTest, LargeParametersAndManyStages) {
  ToyOptions o = Clipped(2, 3, Rule::kCdpV1, Clipping::kExact);
  o.width = 70000;
  ExpectClippedBits(o, LocalTransports());
  o = Clipped(3, 13, Rule::kCdpV1, Clipping::kExact);
  ExpectClippedBits(o, ShmTransports());
}

// Sums in bf16, of a scaled loss: the norm is of what the update takes.
TEST(EngineClipTest, SumsThatAreNotFp32) {
  for (const Clipping clipping : {Clipping::kExact, Clipping::kPerStage, Clipping::kPrevious}) {
    ToyOptions o = Clipped(3, 4, Rule::kCdpV1, clipping);
    o.precision.sums = ValueType::kBf16;
    o.precision.parameters = ValueType::kBf16;
    o.precision.loss_scale.initial = 64;
    ExpectClippedBits(o, LocalTransports());
  }
}

TEST(EngineClipTest, TakenSumsAreWhatTheForecastSays) {
  for (const int zero_stage : {0, 3}) {
    ToyOptions o = Clipped(3, 5, Rule::kCdpV1, Clipping::kExact);
    o.zero_stage = zero_stage;
    RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
    RZ_ASSIGN(const MemoryForecast forecast, ForecastMemory(ToyPlan(o), {}));
    for (int w = 0; w < o.workers; ++w) {
      EXPECT_EQ(ring.memory[w].taken, forecast.workers[w].taken);
      EXPECT_GT(ring.memory[w].taken, 0);
    }
  }
}

TEST(EngineClipTest, PlanAndOptimizerMustAgree) {
  ToyOptions o = Clipped(1, 2, Rule::kDp, Clipping::kExact);
  o.optimizer.max_norm = 0;
  EXPECT_THAT(RunToyRing(o, LocalTransports()), Says("max_norm 0 with clipping exact"));
}

TEST(ClipFactorTest, IsTorchs) {
  EXPECT_EQ(ClipFactor(0.5, 1), 1);
  EXPECT_EQ(ClipFactor(1 - 1e-6, 1), 1) << "norm + 1e-6 is not above it";
  EXPECT_EQ(ClipFactor(1, 1), float(1 / (1 + 1e-6)));
  EXPECT_EQ(ClipFactor(4, 1), float(1 / (4 + 1e-6)));
  EXPECT_EQ(ClipFactor(100, 0), 1) << "0 is off";
  EXPECT_EQ(ClipFactor(INFINITY, 1), 0);
  EXPECT_TRUE(std::isnan(ClipFactor(NAN, 1)));
}

TEST(GradientNormTest, LeavesOutWhatHasNoGradient) {
  const StageLayout layout = StageLayout::Make({{.name = "a", .shape = {3}},
                                                {.name = "b", .shape = {2}},
                                                {.name = "c", .shape = {2}, .trainable = false}},
                                               {});
  Buffer sum = MakeHeapBuffer(static_cast<size_t>(layout.sum_bytes));
  std::fill_n(sum.as<float>().data(), sum.size() / sizeof(float), NAN);
  sum.data()[layout.trailer_offset_bytes] = std::byte{1};
  auto* a = reinterpret_cast<float*>(sum.data() + layout.parameters[0].sum_offset_bytes);
  a[0] = 1, a[1] = -2, a[2] = 2;
  SumSquares squares(layout, sum.data(), nullptr);
  while (squares.Step()) {
  }
  EXPECT_EQ(squares.values(), (std::vector<double>{9, 0}));
  EXPECT_EQ(NormOf({squares.values(), squares.values()}, 2), std::sqrt(18) / 2);
}

}  // namespace
}  // namespace ringzero
