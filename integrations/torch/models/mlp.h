// A multi-layer perceptron: linear layers with ReLU between them.
//
//   RZ_RETURN_IF_ERROR(CheckMlp({.sizes = {784, 256, 10}}));
//   std::vector<LayerFactory> layers = MakeMlp({.sizes = {784, 256, 10}});
//   layers[1].name;   // "linear1"
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_MLP_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_MLP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "integrations/torch/layer_factory.h"

namespace ringzero {

struct MlpOptions {
  std::vector<int64_t> sizes;  // features in, hidden sizes, classes: at least two
};

// InvalidArgument names what the sizes come from: data.input, model.hidden, the classes.
absl::Status CheckMlp(const MlpOptions& options);

// One layer per matrix, its ReLU with it; inputs of any shape are flattened to {batch, features}.
// Options must have passed CheckMlp.
std::vector<LayerFactory> MakeMlp(const MlpOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_MLP_H_
