// Sample numbers from (iteration, micro-batch), and their values as tensors.
#include "integrations/torch/configured/batches.h"

#include <algorithm>
#include <numeric>

#include "integrations/torch/configured/batch.h"

namespace ringzero {

Batches::Batches(const Dataset& data, const BatchesOptions& options)
    : data_(data), options_(options) {}

Batch Batches::Train(Iteration iteration, int micro_batch, std::optional<int64_t> samples) {
  const int64_t epoch = iteration.value / options_.iterations_per_epoch;
  if (epoch != epoch_) {
    order_ = EpochOrder(options_.seed, epoch, data_.train().size());
    epoch_ = epoch;
  }
  const int64_t first = iteration.value % options_.iterations_per_epoch * options_.train_batch +
                        micro_batch * options_.micro_batch;
  const int64_t count = samples.value_or(options_.micro_batch);
  return Read(data_.train(),
              std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
}

Batch Batches::Evaluate(int micro_batch) const {
  const int64_t first = std::min(micro_batch * options_.evaluation_batch, options_.test_samples);
  const int64_t end = std::min(first + options_.evaluation_batch, options_.test_samples);
  if (first == end) {
    const std::vector<int64_t> stand_in = {0};
    Batch batch = Read(data_.test(), stand_in);
    batch.counted = 0;
    return batch;
  }
  std::vector<int64_t> indices(static_cast<size_t>(end - first));
  std::iota(indices.begin(), indices.end(), first);
  return Read(data_.test(), indices);
}

Batch Batches::Read(const Split& split, std::span<const int64_t> indices) const {
  const SampleShape& shape = data_.shape();
  const bool tokens = shape.kind == SampleShape::Kind::kTokens;
  const int64_t count = static_cast<int64_t>(indices.size());
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), shape.input.begin(), shape.input.end());
  Batch batch;
  batch.counted = count;
  batch.inputs = at::empty(sizes, tokens ? at::kLong : at::kFloat);
  batch.targets = at::empty(tokens ? sizes : std::vector<int64_t>{count}, at::kLong);
  split.Read(indices, tokens ? nullptr : batch.inputs.data_ptr<float>(),
             tokens ? batch.inputs.data_ptr<int64_t>() : nullptr,
             batch.targets.data_ptr<int64_t>());
  return batch;
}

}  // namespace ringzero
