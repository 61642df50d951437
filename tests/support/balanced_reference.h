// The reference for balanced sum windows: one process, one loop over all micro-batches of the run.
//
//   TrainingResult wanted = TrainBalancedReference(task, planned.plan());
//
// Written apart from the engine and from its windows: stage j is updated whenever worker j's
// micro-batch is over, from all gradients since it was the last time, divided by N. Everybody reads
// the version before that update, but (slack 0) worker j, which reads the newest.
#ifndef RINGZERO_TESTS_SUPPORT_BALANCED_REFERENCE_H_
#define RINGZERO_TESTS_SUPPORT_BALANCED_REFERENCE_H_

#include "sharding/plan.h"
#include "tests/support/training_task.h"

namespace ringzero {

// Of the plan: workers, cuts, slack, iterations, evaluations and collections. Sums in fp32.
TrainingResult TrainBalancedReference(const TrainingTask& task, const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_BALANCED_REFERENCE_H_
