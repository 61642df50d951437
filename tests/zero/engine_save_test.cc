// What a run saves while it goes on is what a run needs that begins there: parameters, what is read besides,
// states, statistics, norm and loss scale. Saves take longer than a step here, so updates wait for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

ToyOptions Saving(Rule rule, int every) {
  ToyOptions o{.workers = 3, .stages = 4, .iterations = 7, .rule = rule};
  o.optimizer.type = OptimizerOptions::Type::kAdamW;
  o.optimizer.learning_rate = 0.01;
  o.checkpoint = {.every = every};
  return o;
}

void ExpectSavedAndBits(const ToyOptions& o, const MakeTransports& transports) {
  const auto ring = RunToyRing(o, transports);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_TRUE(*ring == RunToyReference(o)) << "saving changes nothing";
  ExpectSaved(o, ring->saved);
}

TEST(EngineSaveTest, EveryRuleAndShapeSavesWhatARunBeginsWith) {
  int runs = 0;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int every : {1, 3}) {
      for (const bool predict : {false, true}) {
        for (const int warmup : {0, 4}) {
          ToyOptions o = Saving(rule, every);
          if (rule != Rule::kDp) {
            o.predict = predict;
            o.warmup_updates = warmup;
          }
          o.workers = 1 + ++runs % 4;
          o.stages = o.workers + runs % 3;
          o.laps = 1 + runs % 2;
          o.zero_stage = runs % 4;
          o.frozen_prefix = runs % 5 == 0 ? 1 : 0;
          o.evaluation = {.every = runs % 3, .laps = 1};
          SCOPED_TRACE(std::to_string(runs));
          ExpectSavedAndBits(o, TransportsOfRun(runs));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(EngineSaveTest, NormsAndTheLossScaleAreSavedToo) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    ToyOptions o = Saving(rule, 2);
    o.clipping = Clipping::kPrevious;
    o.optimizer.max_norm = 0.2;
    ExpectSavedAndBits(o, LocalTransports());
    o.precision = {.compute = ValueType::kFp16, .skip_overflows = true};
    o.precision.loss_scale = {.initial = 64, .dynamic = true, .window = 2};
    o.overflows = {{Iteration(2), StageId(0), 0}, {Iteration(4), StageId(1), 1}};
    o.clipping = Clipping::kExact;
    ExpectSavedAndBits(o, LocalTransports());
  }
}

TEST(EngineSaveTest, ARunGoesOnWithAnotherNumberOfWorkers) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const auto& [before, now] :
         {std::pair(4, 2), std::pair(4, 1), std::pair(2, 4), std::pair(1, 4)}) {
      for (const bool predict : {false, true}) {
        ToyOptions o = Saving(rule, 3);
        o.stages = 5;
        o.workers_before = before;
        o.laps_before = 4 / before;
        o.workers = now;
        o.laps = 4 / now;
        o.first_iteration = 3;
        o.predict = predict && rule != Rule::kDp;
        SCOPED_TRACE(std::to_string(before) + " workers, then " + std::to_string(now));
        ExpectReferenceBits(o, LocalTransports());
      }
    }
  }
}

TEST(EngineSaveTest, WhatIsAskedForIsSaved) {
  for (const int laps : {1, 2}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ToyOptions o = Saving(rule, 0);
      o.laps = laps;
      o.iterations = 14;
      o.predict = rule == Rule::kCdpV1;
      o.checkpoint = {.at_end = laps == 1, .on_request = true};
      o.requests = {{0, Request::kCheckpoint}, {2, Request::kCheckpoint}, {5, Request::kEnd}};
      const auto ring = RunToyRing(o, TransportsOfRun(laps));
      ASSERT_TRUE(ring.ok()) << ring.status();
      ExpectSaved(AsAsked(o), ring->saved);
    }
  }
}

TEST(EngineSaveTest, APlanWithCheckpointsNeedsASaver) {
  ToyOptions o = Saving(Rule::kDp, 1);
  o.workers = 1;
  EngineOptions options{.plan = ToyPlan(o), .layouts = ToyLayouts(o), .optimizer = o.optimizer};
  options.plan.window = 2;
  EXPECT_THAT(Engine::Create(std::move(options)),
              Fails(absl::StatusCode::kInvalidArgument, "needs a saver"));
}

}  // namespace
}  // namespace ringzero
