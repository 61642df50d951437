// What a configuration says of a run, made with LibTorch: the model, the samples of a micro-batch,
// and how a micro-batch is computed.
//
//   RZ_ASSIGN_OR_RETURN(PlannedRun run, MakeConfiguredModel(config.model, data->shape));
//   LapRunner runner(*data, {.seed = 1, .micro_batch = 32, .train_batch = 128, …});
//   std::vector<double> quality = runner.Train(ring, lap);   // then ring.EndMicroBatch({…})
//
// This header includes no header of torch.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_CONFIGURED_RUN_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_CONFIGURED_RUN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "zero/config/config.h"

namespace ringzero {

// Layers and model, without a plan. InvalidArgument names the key of the section `model`, or the
// layer. Uses torch on the calling thread. Every worker makes the same.
absl::StatusOr<PlannedRun> MakeConfiguredModel(const ModelConfig& model, const SampleShape& shape);

struct Batch;  // models.h

// The samples of these numbers, at least one, as tensors.
Batch ReadBatch(const SampleShape& shape, const Split& split, std::span<const int64_t> numbers);

// One micro-batch: its samples, which iteration and number name and never the worker; forward, loss
// and backward. Returns summed loss, correct answers, and how many answers were counted. Used by
// one thread; throws what torch and RingModel throw.
class LapRunner {
 public:
  // `data` must outlive this.
  LapRunner(const Dataset& data, const BatchesOptions& options)
      : data_(data), numbers_(options, data.train.size()) {}

  // `lap` must not be a missing micro-batch (LapTask::missing).
  std::vector<double> Train(RingModel& ring, const LapTask& lap);
  // Without autograd. `micro_batch`: its number within the evaluation.
  std::vector<double> Evaluate(RingModel& ring, int micro_batch);

 private:
  const Dataset& data_;
  SampleNumbers numbers_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_CONFIGURED_RUN_H_
