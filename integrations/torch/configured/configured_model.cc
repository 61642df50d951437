// Builds the layers and runs one sample of zeros through them, to describe them.
#include "integrations/torch/configured/configured_model.h"

#include <functional>
#include <numeric>

#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/models/gpt.h"
#include "integrations/torch/models/mlp.h"
#include "integrations/torch/models/resnet.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/torch.h"

namespace ringzero {
namespace {

absl::StatusOr<std::vector<LayerFactory>> LayersOf(const ModelConfig& model,
                                                   const SampleShape& shape) {
  switch (model.type) {
    case ModelConfig::Type::kResNet: {
      const ResNetOptions options{.depth = model.depth,
                                  .width = model.width,
                                  .channels = shape.input[0],
                                  .image_size = shape.input[1],
                                  .classes = shape.classes};
      RZ_RETURN_IF_ERROR(CheckResNet(options));
      return MakeResNet(options);
    }
    case ModelConfig::Type::kGpt: {
      const GptOptions options{.layers = model.layers,
                               .dim = model.dim,
                               .heads = model.heads,
                               .vocab = model.vocab,
                               .seq = model.seq,
                               .tied = model.tied,
                               .dropout = model.dropout};
      RZ_RETURN_IF_ERROR(CheckGpt(options));
      return MakeGpt(options);
    }
    case ModelConfig::Type::kMlp: {
      MlpOptions options;
      options.sizes.push_back(
          std::accumulate(shape.input.begin(), shape.input.end(), int64_t{1}, std::multiplies<>()));
      options.sizes.insert(options.sizes.end(), model.hidden.begin(), model.hidden.end());
      options.sizes.push_back(shape.classes);
      RZ_RETURN_IF_ERROR(CheckMlp(options));
      return MakeMlp(options);
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
  ConfiguredModel made;
  RZ_RETURN_IF_ERROR(Guard([&]() -> absl::Status {
    RZ_ASSIGN_OR_RETURN(made.layers, LayersOf(model, shape));
    RZ_ASSIGN_OR_RETURN(made.description, DescribeModel(made.layers, {OneSample(shape)}));
    return absl::OkStatus();
  }));
  return made;
}

}  // namespace ringzero
