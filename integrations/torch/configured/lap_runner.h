// LapRunner: one micro-batch of a configured run: its batch, forward, loss and backward.
//
//   LapRunner runner(*data, {.seed = 1, .micro_batch = 32, .train_batch = 128, …});
//   std::vector<double> quality = runner.Train(ring, lap);   // then ring.EndMicroBatch({…})
//
// quality: summed loss, correct answers, and how many were counted. Used by one thread; throws what
// torch and RingModel throw. This header needs none of torch's.
#ifndef RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_LAP_RUNNER_H_
#define RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_LAP_RUNNER_H_

#include <vector>

#include "integrations/data/dataset.h"
#include "integrations/torch/configured/batches.h"
#include "integrations/torch/ring_model.h"

namespace ringzero {

class LapRunner {
 public:
  // `data` must outlive this.
  LapRunner(const Dataset& data, const BatchesOptions& options);

  // Not of a micro-batch that is missing.
  std::vector<double> Train(RingModel& ring, const LapTask& lap);
  // Without autograd. `micro_batch`: of the evaluation.
  std::vector<double> Evaluate(RingModel& ring, int micro_batch);

 private:
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& targets) const;
  std::vector<double> Quality(const Batch& batch, const at::Tensor& logits,
                              const at::Tensor& loss) const;

  const bool tokens_;
  Batches batches_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_LAP_RUNNER_H_
