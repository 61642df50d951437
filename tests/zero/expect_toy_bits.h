// For tests of the engine: options by chance, transports by turns, and that the ring gives the toy
// loop's bits.
//
//   ExpectReferenceBits({.workers = 3, .stages = 4}, ShmTransports());
#ifndef RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_
#define RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {

// What else a plan of these workers, stages and rule may have, by chance.
inline void DrawTheRest(std::mt19937& random, ToyOptions& o) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  if (one_in(3)) {
    o.first_iteration = 1 + int(random() % 5);
    o.iterations += o.first_iteration;
  }
  o.pending = one_in(2) ? 2 : 1;
  o.stagger = o.rule != Rule::kDp && one_in(3);
  if (o.rule != Rule::kDp && one_in(3)) o.warmup_updates = 1 + int(random() % o.iterations);
  o.retain = one_in(2) ? 1 : 0;
  o.frozen_prefix = o.stages > 1 && one_in(4) ? 1 : 0;
  o.tied = o.frozen_prefix == 0 && o.stages > 1 && one_in(3);
  if (one_in(2)) o.evaluation = {.every = 2, .laps = one_in(2) ? 2 : 1};
  if (one_in(2)) {
    o.collection = {.every = 1 + int(random() % 3), .worker = WorkerId(int(random() % o.workers))};
  }
  o.optimizer.type = one_in(2) ? OptimizerOptions::Type::kAdamW : OptimizerOptions::Type::kSgd;
  o.optimizer.sgd.momentum = 0.9;
}

// Local, shm and lanes by turns.
inline MakeTransports TransportsOfRun(int run) {
  return run % 3 == 0 ? LocalTransports() : run % 3 == 1 ? ShmTransports() : LaneTransports();
}

// Which workers that these transports connect lend each other memory (Plan::hosts), by turns: none; all;
// all; and, over `local`, those of two hosts, cut at a place that moves from turn to turn.
inline std::vector<int> HostsOfRun(const MakeTransports& transports, int run, int workers) {
  if (workers == 1) return run % 2 == 0 ? std::vector<int>() : std::vector<int>{1};
  const auto made = transports({TransportOptions()});
  const bool shares =
      made.ok() && !(*made)[0]->MemoryOf(WorkerId(0), MemoryUse::kSums).bytes.empty();
  if (!shares || run % 4 == 0) return {};
  const bool is_local = (*made)[0]->name() == "local";
  if (run % 4 < 3 || !is_local) return {workers};
  const int first = 1 + run / 4 % (workers - 1);
  return {first, workers - first};
}

inline void ExpectReferenceBitsOn(const ToyOptions& o, const MakeTransports& transports) {
  SCOPED_TRACE(absl::StrCat(PlanToString(ToyPlan(o)), "compute ", ToString(o.precision.compute),
                            ", parameters ", ToString(o.precision.wire()), ", sums ",
                            ToString(o.precision.sums), ", scale ", o.precision.loss_scale.initial,
                            ", optimizer ", int(o.optimizer.type)));
  const absl::StatusOr<ToyResult> ring = RunToyRing(o, transports);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const ToyResult reference = RunToyReference(AsAsked(o));
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
  EXPECT_EQ(ring->skipped, reference.skipped);
}

inline void ExpectReferenceBits(ToyOptions o,
                                const MakeTransports& transports = LocalTransports()) {
  static int run = 0;
  o.hosts = HostsOfRun(transports, ++run, o.workers);
  ExpectReferenceBitsOn(o, transports);
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_
