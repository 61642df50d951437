// Residual networks for small images, as He et al. (2015) trained on CIFAR-10: depth 6n+2.
//
//   ResNetOptions options = {.depth = 20, .width = 16, .channels = 1, .image_size = 28};
//   RZ_RETURN_IF_ERROR(CheckResNet(options));
//   std::vector<LayerFactory> layers = MakeResNet(options);   // 20 layers
//
// Layers: "stem", for each of the 3n blocks "block<i>.first" and "block<i>.second", "head"; so a
// depth of 6n+2 gives as many layers. Between the halves of a block two tensors travel: the block's
// input (for its shortcut) and the first half's result. Shortcuts have no parameters (option A:
// every second pixel, new channels zero). Three groups of n blocks have width, 2·width and 4·width
// channels; the second and third halve the image.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_RESNET_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_RESNET_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "integrations/torch/layer.h"

namespace ringzero {

struct ResNetOptions {
  int64_t depth = 20;       // 6n+2: 8, 14, 20, 32, 56, 110, …
  int64_t width = 16;       // channels of the first group
  int64_t channels = 3;     // of the images: 1 or 3
  int64_t image_size = 32;  // pixels, height = width: from the data (28 or 32); for the costs alone
  int64_t classes = 10;
};

// InvalidArgument names the key of the configuration: "model.depth …".
absl::Status CheckResNet(const ResNetOptions& options);

// Maps {batch, channels, image_size, image_size} to logits {batch, classes}. Options must have
// passed CheckResNet.
std::vector<LayerFactory> MakeResNet(const ResNetOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_RESNET_H_
