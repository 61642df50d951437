// Builds the layers and runs one sample of zeros through them, to describe them. Finds sample
// numbers from (iteration, micro-batch). Computes cross entropy, and the counts beside it.
#include "integrations/torch/models/configured_run.h"

#include <c10/util/accumulate.h>

#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/models/models.h"

namespace ringzero {
namespace {

absl::StatusOr<std::vector<LayerFactory>> LayersOf(const ModelConfig& model,
                                                   const SampleShape& shape) {
  switch (model.type) {
    case ModelConfig::Type::kResNet:
      return MakeResNet({.depth = model.depth,
                         .width = model.width,
                         .channels = shape.input[0],
                         .image_size = shape.input[1],
                         .classes = shape.classes});
    case ModelConfig::Type::kGpt: return MakeGpt(model.gpt);
    case ModelConfig::Type::kMlp: {
      std::vector<int64_t> sizes = {c10::multiply_integers(shape.input)};
      sizes.insert(sizes.end(), model.hidden.begin(), model.hidden.end());
      sizes.push_back(shape.classes);
      return MakeMlp(sizes);
    }
  }
  return absl::InternalError("model type without a builder");
}

at::Tensor OneSample(const SampleShape& shape) {
  std::vector<int64_t> sizes = {1};
  sizes.insert(sizes.end(), shape.input.begin(), shape.input.end());
  return at::zeros(sizes, shape.kind == SampleShape::Kind::kTokens ? at::kLong : at::kFloat);
}

}  // namespace

absl::StatusOr<ConfiguredModel> MakeConfiguredModel(const ModelConfig& model,
                                                    const SampleShape& shape) {
  return Guard([&]() -> absl::StatusOr<ConfiguredModel> {
    ConfiguredModel made;
    RZ_ASSIGN_OR_RETURN(made.layers, LayersOf(model, shape));
    RZ_ASSIGN_OR_RETURN(made.description, DescribeModel(made.layers, {OneSample(shape)}));
    return made;
  });
}

Batches::Batches(const Dataset& data, const BatchesOptions& options)
    : data_(data), micro_batch_(options.micro_batch), numbers_(options, data.train().size()) {}

Batch Batches::Train(Iteration iteration, int micro_batch, std::optional<int64_t> samples) {
  const int64_t count = samples.value_or(micro_batch_);
  return Read(data_.train(),
              numbers_.Train(iteration.value, micro_batch).first(static_cast<size_t>(count)));
}

Batch Batches::Evaluate(int micro_batch) const {
  const std::vector<int64_t> indices = numbers_.Evaluate(micro_batch);
  if (!indices.empty()) return Read(data_.test(), indices);
  const std::vector<int64_t> stand_in = {0};
  Batch batch = Read(data_.test(), stand_in);
  batch.counted = 0;
  return batch;
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

LapRunner::LapRunner(const Dataset& data, const BatchesOptions& options)
    : tokens_(data.shape().kind == SampleShape::Kind::kTokens), batches_(data, options) {}

// Mean cross entropy over all samples, or all tokens.
at::Tensor LapRunner::Loss(const at::Tensor& logits, const at::Tensor& targets) const {
  return at::cross_entropy_loss(tokens_ ? logits.flatten(0, 1) : logits,
                                tokens_ ? targets.flatten() : targets);
}

std::vector<double> LapRunner::Quality(const Batch& batch, const at::Tensor& logits,
                                       const at::Tensor& loss) const {
  if (batch.counted == 0) return {0, 0, 0};
  const double count = static_cast<double>(batch.targets.numel());
  double correct = 0;
  if (!tokens_) {
    at::NoGradGuard no_grad;
    correct =
        static_cast<double>(logits.detach().argmax(-1).eq(batch.targets).sum().item<int64_t>());
  }
  return {static_cast<double>(loss.item<float>()) * count, correct, count};
}

std::vector<double> LapRunner::Train(RingModel& ring, const LapTask& lap) {
  const Batch batch = batches_.Train(lap.iteration, lap.micro_batch, lap.samples);
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  const at::Tensor loss = Loss(logits, batch.targets);
  loss.backward();
  return Quality(batch, logits, loss);
}

std::vector<double> LapRunner::Evaluate(RingModel& ring, int micro_batch) {
  const Batch batch = batches_.Evaluate(micro_batch);
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  at::NoGradGuard no_grad;
  const at::Tensor loss = Loss(logits, batch.targets);
  return Quality(batch, logits, loss);
}

}  // namespace ringzero
