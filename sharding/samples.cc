// Deals an epoch's last samples to micro-batches, in order.
#include "sharding/samples.h"

#include <algorithm>

namespace ringzero {
namespace {

int64_t MicroBatches(const Plan& plan) { return int64_t{plan.workers} * plan.laps; }

// Samples that are left of the epoch at the beginning of `iteration`, as far as it can take them.
int64_t SamplesOfIteration(const Plan& plan, Iteration iteration) {
  const int64_t full = MicroBatches(plan) * plan.samples.micro_batch;
  if (plan.samples.per_epoch == 0) return full;
  const int64_t taken = iteration.value % IterationsPerEpoch(plan) * full;
  return std::min(full, plan.samples.per_epoch - taken);
}

}  // namespace

int64_t IterationsPerEpoch(const Plan& plan) {
  const int64_t full = MicroBatches(plan) * plan.samples.micro_batch;
  return (plan.samples.per_epoch + full - 1) / full;
}

int64_t SamplesOf(const Plan& plan, Iteration iteration, int micro_batch) {
  const int64_t each = plan.samples.micro_batch;
  const int64_t left = SamplesOfIteration(plan, iteration) - micro_batch * each;
  return std::clamp<int64_t>(left, 0, each);
}

int64_t SamplesBefore(const Plan& plan, Iteration iteration) {
  const int64_t full = MicroBatches(plan) * plan.samples.micro_batch;
  if (plan.samples.per_epoch == 0) return iteration.value * full;
  const int64_t epoch = iteration.value / IterationsPerEpoch(plan);
  return epoch * plan.samples.per_epoch + iteration.value % IterationsPerEpoch(plan) * full;
}

double WeightOf(const Plan& plan, Iteration iteration, int micro_batch) {
  return static_cast<double>(SamplesOf(plan, iteration, micro_batch)) /
         static_cast<double>(plan.samples.micro_batch);
}

double DivisorOf(const Plan& plan, Iteration iteration) {
  return static_cast<double>(SamplesOfIteration(plan, iteration)) /
         static_cast<double>(plan.samples.micro_batch);
}

}  // namespace ringzero
