// Samples: how many each micro-batch of training has, and what it weighs in its update.
//
//   SamplesOf(plan, Iteration(7), 3);   // of micro-batch 3 = l·N + w: 0: it is missing
//
// An epoch's samples go to iterations of N·K·b, b those of a full micro-batch. Of its last
// iteration the micro-batches are filled in order; one may be smaller, and those after it are
// missing. A missing micro-batch keeps its number and its place in every program: its worker takes
// and passes on copies, sums, statistics and metrics, and adds nothing. Where the plan does not
// count samples (plan.samples.per_epoch == 0) all are full.
#ifndef RINGZERO_SHARDING_SAMPLES_H_
#define RINGZERO_SHARDING_SAMPLES_H_

#include <cstdint>

#include "base/ids.h"
#include "sharding/plan.h"

namespace ringzero {

// ceil(per_epoch / (N·K·b)); 0 where the plan does not count.
int64_t IterationsPerEpoch(const Plan& plan);

// The number within the iteration, l·N + w, of a worker's micro-batch.
inline int MicroBatchOf(const Plan& plan, WorkerId worker, Lap lap) {
  return lap.value * plan.workers + worker.value;
}

// `micro_batch`: its number within the iteration.
int64_t SamplesOf(const Plan& plan, Iteration iteration, int micro_batch);

// Of all iterations before this one.
int64_t SamplesBefore(const Plan& plan, Iteration iteration);

// What the gradient of a micro-batch's mean loss is multiplied by before it is added, n/b, and what
// the update divides the sum by, Σn/b: together the gradient of the mean over all samples. Of full
// ones 1 and N·K.
double WeightOf(const Plan& plan, Iteration iteration, int micro_batch);
double DivisorOf(const Plan& plan, Iteration iteration);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_SAMPLES_H_
