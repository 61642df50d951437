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

// Mean cross entropy over all samples, or all tokens.
at::Tensor Loss(const Batch& batch, const at::Tensor& logits) {
  return at::cross_entropy_loss(logits.flatten(0, -2), batch.targets.flatten());
}

std::vector<double> Quality(const Batch& batch, const at::Tensor& logits, const at::Tensor& loss) {
  const double count = static_cast<double>(batch.targets.numel());
  double correct = 0;
  if (batch.targets.dim() == 1) {  // no tokens
    at::NoGradGuard no_grad;
    correct =
        static_cast<double>(logits.detach().argmax(-1).eq(batch.targets).sum().item<int64_t>());
  }
  return {static_cast<double>(loss.item<float>()) * count, correct, count};
}

}  // namespace

absl::StatusOr<PlannedRun> MakeConfiguredModel(const ModelConfig& model, const SampleShape& shape) {
  return Guard([&]() -> absl::StatusOr<PlannedRun> {
    PlannedRun run;
    RZ_ASSIGN_OR_RETURN(run.layers, LayersOf(model, shape));
    RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, {OneSample(shape)}));
    return run;
  });
}

Batch ReadBatch(const SampleShape& shape, const Split& split, std::span<const int64_t> numbers) {
  const bool tokens = shape.kind == SampleShape::Kind::kTokens;
  const int64_t count = static_cast<int64_t>(numbers.size());
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), shape.input.begin(), shape.input.end());
  Batch batch{.inputs = at::empty(sizes, tokens ? at::kLong : at::kFloat),
              .targets = at::empty(tokens ? sizes : std::vector<int64_t>{count}, at::kLong)};
  split.Read(numbers, {tokens ? nullptr : batch.inputs.data_ptr<float>(),
                       tokens ? batch.inputs.data_ptr<int64_t>() : nullptr,
                       batch.targets.data_ptr<int64_t>()});
  return batch;
}

std::vector<double> LapRunner::Train(RingModel& ring, const LapTask& lap) {
  const Batch batch =
      ReadBatch(data_.shape, data_.train, numbers_.Train(lap.iteration.value, lap.micro_batch));
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  const at::Tensor loss = Loss(batch, logits);
  loss.backward();
  return Quality(batch, logits, loss);
}

std::vector<double> LapRunner::Evaluate(RingModel& ring, int micro_batch) {
  std::vector<int64_t> numbers = numbers_.Evaluate(micro_batch);
  const bool counts = !numbers.empty();
  if (!counts) numbers = {0};  // a stand-in, where no samples are left: it weighs nothing
  const Batch batch = ReadBatch(data_.shape, data_.test, numbers);
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  if (!counts) return {0, 0, 0};
  at::NoGradGuard no_grad;
  return Quality(batch, logits, Loss(batch, logits));
}

}  // namespace ringzero
