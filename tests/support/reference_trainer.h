// The reference: one process, one loop, ordinary parameters. What the ring must equal, bit for bit.
//
//   TrainingResult wanted = TrainReference(task, planned.plan);
//
// Written apart from the engine: it takes stage cuts and integer costs from the plan and works out
// staleness, sums, updates and running statistics itself, from algorithm.md sections 4 and 5. What
// needs no autograd is proven with the toy model (tests/zero/toy_ring.h): predictions, injected
// overflows, clipping by stage or by the norm before.
#ifndef RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_
#define RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "tests/support/ring_runner.h"
#include "tests/support/training_task.h"

namespace ringzero {

TrainingResult TrainReference(const TrainingTask& task, const Plan& plan);

// Fails the test, naming the plan, where the ring's losses, evaluations, parameters, statistics or
// collections are not the reference's, to the bit.
void ExpectReferenceBits(const TrainingTask& task, const absl::StatusOr<PlannedTask>& planned,
                         const RingOptions& options = {});

// An ordinary LibTorch loop: `accumulation` micro-batches, .grad divided once, a torch::optim step.
// BatchNorm keeps its own running statistics.
TrainingResult TrainOrdinaryLoop(const TrainingTask& task, int accumulation, int iterations);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_
