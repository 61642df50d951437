// The ring gives the toy loop's bits.
//
//   ExpectReferenceBits({.workers = 3, .stages = 4}, ShmTransports());
#ifndef RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_
#define RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {

inline void ExpectReferenceBits(const ToyOptions& o,
                                const MakeTransports& transports = LocalTransports()) {
  SCOPED_TRACE(absl::StrCat(PlanToString(ToyPlan(o)), "compute ", ToString(o.precision.compute),
                            ", parameters ", ToString(o.precision.wire()), ", sums ",
                            ToString(o.precision.sums), ", scale ", o.precision.loss_scale.initial,
                            ", optimizer ", int(o.optimizer.type)));
  const absl::StatusOr<ToyResult> ring = RunToyRing(o, transports);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const ToyResult reference = RunToyReference(o);
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
  EXPECT_EQ(ring->skipped, reference.skipped);
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_EXPECT_TOY_BITS_H_
