// The models that a configuration can name, as layers.
//
//   RZ_RETURN_IF_ERROR(CheckGpt(options));
//   std::vector<LayerFactory> layers = MakeGpt(options);
//
// Each Check returns InvalidArgument that names the key of the configuration: "model.heads …". The
// options of a Make must have passed its Check.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "integrations/torch/layer_factory.h"
#include "zero/config/config.h"

namespace ringzero {

// A multi-layer perceptron: linear layers with ReLU between them. One layer per matrix, its ReLU
// with it ("linear1"); inputs of any shape are flattened to {batch, features}.
struct MlpOptions {
  std::vector<int64_t> sizes;  // features in, hidden sizes, classes: at least two
};
absl::Status CheckMlp(const MlpOptions& options);
std::vector<LayerFactory> MakeMlp(const MlpOptions& options);

// GPT: a decoder-only transformer with learned positions and norms before each part (pre-norm).
// Layers: "embedding", for each of the blocks "block<i>.attention" and "block<i>.mlp", "head". Maps
// int64 tokens {batch, sequence} to logits {batch, sequence, vocab}; a sequence may be shorter than
// `seq`. A tied head has a parameter "weight" that says so in LayerFactory::tied.
absl::Status CheckGpt(const GptOptions& options);
std::vector<LayerFactory> MakeGpt(const GptOptions& options);

// Residual networks for small images, as He et al. (2015) describe them for CIFAR-10 and ImageNet.
//
// Depths 18, 34 and 50 are ImageNet's networks: four groups of 2, 2, 2, 2 (18) or 3, 4, 6, 3 blocks
// with width, 2·width, 4·width and 8·width channels (four times that between the bottleneck blocks
// of 50), shortcuts with a 1x1 convolution and a norm where the shape changes. For images of 32
// pixels the stem is a 3x3 convolution without pooling, as is usual; all else is torchvision's.
// All other depths are 6n+2, CIFAR-10's networks: three groups of n blocks with width, 2·width and
// 4·width channels, shortcuts without parameters (option A: every second pixel, new channels zero).
// Each group but the first halves the image.
//
// Layers: "stem", for each block "block<i>.first", "block<i>.second" and, in a bottleneck,
// "block<i>.third", then "head": as many as the depth. Between the parts of a block two tensors
// travel: what the shortcut adds and the result so far. Maps {batch, channels, image_size,
// image_size} to logits {batch, classes}.
struct ResNetOptions {
  int64_t depth = 20;       // 18, 34, 50; or 6n+2: 8, 14, 20, 32, 56, 110, …
  int64_t width = 0;        // channels of the first group; 0: 64 for 18, 34 and 50, else 16
  int64_t channels = 3;     // of the images: 1 or 3
  int64_t image_size = 32;  // pixels, height = width: from the data (28 or 32); for the costs alone
  int64_t classes = 10;
};
absl::Status CheckResNet(const ResNetOptions& options);
std::vector<LayerFactory> MakeResNet(const ResNetOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_
