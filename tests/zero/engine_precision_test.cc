// Types of what travels: the engine gives the bits of a loop that keeps everything in fp32 and
// rounds what would travel.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "sharding/memory/block_table.h"
#include "sharding/rules/schedule.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"
#include "tests/zero/update_reference.h"
#include "zero/gradient_sum.h"
#include "zero/model_plan.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {
namespace {

constexpr ValueType kFp32 = ValueType::kFp32, kBf16 = ValueType::kBf16, kFp16 = ValueType::kFp16;

const std::vector<Precision>& Precisions() {
  static const auto* const all = new std::vector<Precision>{
      {.compute = kBf16, .parameters = kBf16},
      {.compute = kFp16, .parameters = kFp16, .loss_scale = {.initial = 1024}},
      {.compute = kBf16, .parameters = kBf16, .sums = kBf16},
      {.compute = kFp32, .parameters = kFp32, .sums = kBf16},
      {.compute = kFp16, .parameters = kFp16, .sums = kBf16, .loss_scale = {.initial = 6}},
      {.compute = kFp32, .parameters = kBf16}};
  return *all;
}

TEST(EnginePrecisionTest, BitsOverTypesRulesAndShapes) {
  std::mt19937 random(5);
  int run = 0;
  for (const Precision& precision : Precisions()) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
        ToyOptions o{.workers = 1 + run % 4, .laps = 1 + run % 2, .rule = rule};
        o.stages = o.workers + int(random() % 3);
        o.zero_stage = zero_stage;
        o.precision = precision;
        o.width = 3 + int(random() % 40);
        DrawTheRest(random, o);
        const MakeTransports transports = run % 2 == 0 ? LocalTransports() : ShmTransports();
        ExpectReferenceBits(o, transports);
        if (HasFatalFailure()) return;
        ++run;
      }
    }
  }
}

// With slack 1 no version is overwritten while a collection reads it: every version is shown.
TEST(EnginePrecisionTest, CollectionsShowMasters) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    ToyOptions o{.workers = 3, .stages = 6, .iterations = 5, .rule = rule};
    o.precision = {.compute = kBf16, .parameters = kBf16};
    o.collection = {.every = 1, .worker = WorkerId(1)};
    ExpectReferenceBits(o, Delayed(ShmTransports(), 3, std::chrono::microseconds(300)));
    // Some of what is shown is no bf16.
    RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
    int narrow = 0;
    for (const float value : ring.parameters) {
      narrow += reference::FromWire(ValueType::kBf16, reference::ToWire(ValueType::kBf16, value)) ==
                value;
    }
    EXPECT_LT(narrow, static_cast<int>(ring.parameters.size()));
  }
}

TEST(EnginePrecisionTest, HalfOfTheBytesTravel) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    ToyOptions o{.workers = 3, .stages = 4, .zero_stage = zero_stage, .laps = 2};
    o.width = 320;
    RZ_ASSIGN(const ToyResult wide, RunToyRing(o, LocalTransports()));
    o.precision = {.compute = kBf16, .sums = kBf16};
    RZ_ASSIGN(const ToyResult narrow, RunToyRing(o, LocalTransports()));
    // Of the 320 values; 3 unused ones and a trailer take 64 bytes in any type.
    const int64_t messages = wide.sum_bytes_sent / (1280 + 64 + 64);
    EXPECT_EQ(narrow.sum_bytes_sent, messages * (640 + 64 + 64));
    const int64_t copies = wide.parameter_bytes_sent / (1280 + 64);
    EXPECT_EQ(narrow.parameter_bytes_sent, copies * (640 + 64));
    o.iterations = 1;
    EXPECT_EQ(SteadyWireBytes(ToyPlan(o)).sums % (640 + 64 + 64), 0);
  }
}

TEST(EnginePrecisionTest, AllocatesWhatTheForecastSays) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV2}) {
    for (const int every : {0, 2}) {
      ToyOptions o{.workers = 3, .stages = 6, .iterations = 6, .rule = rule, .width = 256};
      o.precision = {.compute = kBf16, .parameters = kBf16};
      o.collection.every = every;
      SCOPED_TRACE(PlanToString(ToyPlan(o)));
      RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
      RZ_ASSIGN(
          const auto forecast,
          ForecastMemory(ToyPlan(o), {.moment_bytes = MomentBytes(o.optimizer, ToyLayouts(o))}));
      // Per stage 256 values, and 3 that take 64 bytes in any type.
      constexpr int64_t kMasters = 1024 + 64, kVersion = 512 + 64;
      for (int w = 0; w < o.workers; ++w) {
        EXPECT_EQ(ring.memory[w].masters, forecast.workers[w].masters);
        EXPECT_EQ(ring.memory[w].versions, forecast.workers[w].versions);
        EXPECT_EQ(ring.memory[w].masters, 2 * kMasters);
        const int64_t second = rule == Rule::kDp ? 0 : kVersion + (every > 0 ? kMasters : 0);
        EXPECT_EQ(ring.memory[w].versions, 2 * (kVersion + second));
      }
    }
  }
}

TEST(EnginePrecisionTest, ParametersTravelInTheTypeThatComputes) {
  const ModelDescription model{
      .layers = {{.name = "a", .parameters = {{.name = "w", .shape = {64}}}, .cost = {1, 2}}},
      .parameter_count = 64};
  RZ_ASSIGN(const PlannedModel planned, PlanModel(model, {.precision = {.compute = kBf16}}));
  EXPECT_EQ(planned.layouts[0].parameter_type, kBf16);
  EXPECT_EQ(planned.layouts[0].parameter_bytes, 128);
}

TEST(EnginePrecisionTest, EveryParameterBeginsAtAMultipleOf64Bytes) {
  const StageLayout layout =
      StageLayout::Make({{.name = "a", .shape = {33}}, {.name = "b", .shape = {5}}}, {},
                        {.parameters = kBf16, .sums = kBf16});
  EXPECT_EQ(layout.parameters[1].offset_bytes, 128);         // 66 bytes before it
  EXPECT_EQ(layout.parameters[1].master_offset_bytes, 192);  // 132
  EXPECT_EQ(layout.parameters[1].sum_offset_bytes, 128);
  EXPECT_EQ(layout.parameter_bytes, 192);
  EXPECT_EQ(layout.master_bytes, 256);
  EXPECT_EQ(layout.sum_bytes, 256);  // with the trailer
}

// Rounding depends on the parameter's name and place, not on the stage that holds it.
TEST(EnginePrecisionTest, RoundingDoesNotDependOnTheCut) {
  const Precision precision{.sums = kBf16};
  const ParameterSpec a{.name = "a", .shape = {33}}, b{.name = "b", .shape = {5000}};
  const StageLayout both = StageLayout::Make({a, b}, {}, precision);
  const StageLayout alone = StageLayout::Make({b}, {}, precision);
  const std::vector<float> gradient(5000, 1.0f / 3);
  Buffer one = MakeHeapBuffer(both.sum_bytes), two = MakeHeapBuffer(alone.sum_bytes);
  for (int m = 0; m < 3; ++m) {
    const SumRounding rounding{.seed = 9, .iteration = 2, .micro_batch = m};
    AddContribution(both, 1, {gradient.data()}, rounding, one.data());
    AddContribution(alone, 0, {gradient.data()}, rounding, two.data());
  }
  EXPECT_EQ(std::memcmp(one.data() + both.parameters[1].sum_offset_bytes, two.data(), 10000), 0);
}

}  // namespace
}  // namespace ringzero
