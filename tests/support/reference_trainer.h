// The reference: one process, one loop, ordinary parameters. What the ring must equal, bit for bit.
//
//   TrainingResult wanted = TrainReference(task, planned.plan);
//
// Apart from the engine and from how layers hand their gradients over: one model, all its leaves,
// ordinary backwards, statistics blended by itself. What needs no autograd (which version a
// micro-batch reads, sums, updates, the loss's scale) is the library's and is proven without LibTorch,
// for every option of a plan: tests/zero/engine_test.cc, tests/sharding/schedule_test.cc.
#ifndef RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_
#define RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "tests/support/ring_runner.h"
#include "tests/support/tasks.h"

namespace ringzero {

// `before`: the plan of the iterations before plan.first_iteration, which are trained, too; losses are
// of later ones.
TrainingResult TrainReference(const TrainingTask& task, const Plan& plan,
                              const Plan* before = nullptr);

// Fails the test, naming the plan, where the ring's losses, evaluations, parameters, statistics or
// collections are not the reference's, to the bit.
void ExpectReferenceBits(const TrainingTask& task, const absl::StatusOr<PlannedTask>& planned,
                         const RingOptions& options = {});

// An ordinary LibTorch loop: `accumulation` micro-batches, .grad divided once, a torch::optim step.
// BatchNorm keeps its own running statistics.
TrainingResult TrainOrdinaryLoop(const TrainingTask& task, int accumulation, int iterations);

// Between a and b, in units of the last place of the largest number that took part: a, b, what was
// `before`, or what was added to it. All of one shape, fp32.
double LargestDifferenceInUlps(const at::Tensor& a, const at::Tensor& b, const at::Tensor& before);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_REFERENCE_TRAINER_H_
