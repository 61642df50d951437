// What engines send, copy and know at once is what the plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "sharding/program/program.h"
#include "sharding/rules/schedule.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

TEST(EngineMeasuresTest, MeasuredBytesEqualTheFormula) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int n : {2, 3, 4}) {
      ToyOptions o{.workers = n, .stages = n + 1, .laps = 2, .rule = rule};
      o.optimizer.type = OptimizerOptions::Type::kSgd;
      o.optimizer.sgd.momentum = 0.9;
      for (int i = 0; i < 8; ++i) {
        o.zero_stage = i % 4;
        o.predict = i >= 4 && rule != Rule::kDp;
        SCOPED_TRACE(
            absl::StrCat(ToString(rule), " N ", n, " zero ", o.zero_stage, " predict ", o.predict));
        int64_t parameters = 0, sums = 0;
        // Four iterations more: the first is not steady where copies are held.
        for (const int iterations : {1, 5}) {
          o.iterations = iterations;
          RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
          parameters = ring.parameter_bytes_sent - parameters;
          sums = ring.sum_bytes_sent - sums;
        }
        const WireBytes steady = SteadyWireBytes(ToyPlan(o));
        EXPECT_EQ(parameters, 4 * steady.parameters);
        EXPECT_EQ(sums, 4 * steady.sums);
      }
    }
  }
}

// Book-keeping is of a few laps, however many an iteration has.
TEST(EngineMeasuresTest, WhatIsKnownAtOnceDoesNotGrowWithTheLaps) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ToyOptions o{.workers = 3, .stages = 4, .iterations = 3, .rule = rule};
      o.zero_stage = zero_stage;
      // The laps that are known, both ends of an iteration, and on a busy machine what is not done
      // yet of the laps before: less than what one iteration of eight laps is, of the forty that
      // run.
      int64_t eight_laps = 0;
      for (int w = 0; w < o.workers; ++w) {
        o.laps = 8;
        RZ_ASSIGN(const auto program,
                  MakeProgram(ToyPlan(o), WorkerId(w), {Iteration(1), Iteration(2)}));
        eight_laps = std::max(eight_laps, static_cast<int64_t>(program.ops.size()));
      }
      o.laps = 40;
      ExpectReferenceBits(o, Delayed(LocalTransports(), 5, std::chrono::microseconds(20)));
      RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
      for (const int64_t known : ring.operations) {
        EXPECT_LE(known, eight_laps) << ToString(rule) << " zero " << zero_stage;
        EXPECT_GT(known, eight_laps / 6);
      }
    }
  }
}

}  // namespace
}  // namespace ringzero
