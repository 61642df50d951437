// ExpectReferenceBits: what a ring gives is the reference's, to the bit.
//
//   ExpectReferenceBits(task, PlanTask(task, {.workers = 3, .iterations = 4}));
#ifndef RINGZERO_TESTS_SUPPORT_EXPECT_BITS_H_
#define RINGZERO_TESTS_SUPPORT_EXPECT_BITS_H_

#include <gtest/gtest.h>

#include "absl/status/statusor.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"

namespace ringzero {

// Fails, naming the plan, where losses, evaluations, parameters, statistics or collections differ.
inline void ExpectReferenceBits(const TrainingTask& task,
                                const absl::StatusOr<PlannedTask>& planned,
                                const RingOptions& options = {}) {
  ASSERT_TRUE(planned.ok()) << planned.status();
  SCOPED_TRACE(PlanToString(planned->plan()));
  const absl::StatusOr<TrainingResult> ring = RunRing(task, *planned, options);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const TrainingResult reference = TrainReference(task, planned->plan());
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_EXPECT_BITS_H_
