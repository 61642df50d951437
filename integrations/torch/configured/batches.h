// Batches: the samples of one micro-batch as tensors, named by iteration and number, never by
// worker.
//
//   Batches batches(data, {.seed = 1, .micro_batch = 32, .train_batch = 128, …});
//   Batch batch = batches.Train(lap.iteration, lap.micro_batch);
//   Batch test = batches.Evaluate(lap.micro_batch);
//
// Used by one thread. Reads only what is asked for. This header needs none of torch's.
#ifndef RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_BATCHES_H_
#define RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_BATCHES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "integrations/data/dataset.h"

namespace ringzero {

struct BatchesOptions {
  uint64_t seed = 0;
  int64_t micro_batch = 1;
  int64_t train_batch = 1;           // samples of one iteration
  int64_t iterations_per_epoch = 1;  // what more an epoch's order has is left out
  int64_t evaluation_batch = 1;
  int64_t test_samples = 0;
};

struct Batch;  // batch.h

class Batches {
 public:
  // `data` must outlive this.
  Batches(const Dataset& data, const BatchesOptions& options);

  // `samples`: how many it has (LapTask::samples), at least 1; nothing: as many as any.
  Batch Train(Iteration iteration, int micro_batch, std::optional<int64_t> samples = std::nullopt);
  Batch Evaluate(int micro_batch) const;

 private:
  Batch Read(const Split& split, std::span<const int64_t> indices) const;

  const Dataset& data_;
  const BatchesOptions options_;
  int64_t epoch_ = -1;  // whose order is in order_
  std::vector<int64_t> order_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_BATCHES_H_
