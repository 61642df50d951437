// The models that a configuration can name, as layers; and what layers are made of: parameters
// without initial values, what their arithmetic costs, and Dropout.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<LayerFactory> layers, MakeGpt(options));
//
// Each Make returns InvalidArgument that names the key of the configuration: "model.heads …".
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/linear.h"
#include "zero/config/config.h"

namespace ringzero {

// A multi-layer perceptron: linear layers with ReLU between them. One layer per matrix, its ReLU
// with it ("linear1"); inputs of any shape are flattened to {batch, features}. `sizes`: features
// in, hidden sizes, classes: at least two.
absl::StatusOr<std::vector<LayerFactory>> MakeMlp(const std::vector<int64_t>& sizes);

// GPT: a decoder-only transformer with learned positions and norms before each part (pre-norm).
// Layers: "embedding", for each of the blocks "block<i>.attention" and "block<i>.mlp", "head". Maps
// int64 tokens {batch, sequence} to logits {batch, sequence, vocab}; a sequence may be shorter than
// `seq`. A tied head has a parameter "weight" that says so in LayerFactory::tied.
absl::StatusOr<std::vector<LayerFactory>> MakeGpt(const GptOptions& options);

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
absl::StatusOr<std::vector<LayerFactory>> MakeResNet(const ResNetOptions& options);

// One micro-batch's samples as tensors, of ReadBatch (configured_run.h).
struct Batch {
  at::Tensor inputs;   // fp32 {n, …} or int64 {n, sequence}
  at::Tensor targets;  // int64 {n} or {n, sequence}
};

// Parts that the models share. Their parameters are not filled when a part is built, so building a
// layer is cheap however large it is and touches no page of memory. LayerFactory::initialize gives
// the values, one parameter at a time.

// y = x W^T + b. Parameters "weight" {out, in} and "bias" {out}.
class LinearPart final : public torch::nn::Module {
 public:
  LinearPart(int64_t in, int64_t out)
      : weight_(register_parameter("weight", at::empty({out, in}))),
        bias_(register_parameter("bias", at::empty({out}))) {}
  at::Tensor forward(const at::Tensor& x) { return Linear(x, weight_, bias_); }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// The initial values of norms and biases: a weight ("norm.weight") is 1, a bias is 0.
void StartAsIdentity(const std::string& parameter, const at::Tensor& values);

// FLOPs of one sample; a multiply-add counts 2. Elementwise work counts what it reads and computes
// roughly, so that a layer of it alone is not free.
enum class InputGradient { kNone, kNeeded };
// A matrix product or convolution of `multiply_adds`: backward makes the weights' gradient and,
// unless nothing before it learns, the inputs'.
LayerCost ProductCost(int64_t multiply_adds, InputGradient inputs = InputGradient::kNeeded);
LayerCost NormCost(int64_t elements);         // batch or layer norm: forward 8, backward 16
LayerCost ElementwiseCost(int64_t elements);  // ReLU, a sum: forward 1, backward 1
LayerCost operator+(LayerCost a, LayerCost b);

// Dropout whose mask is a function of what is computed, not of a process's generator. In training
// each element is zero with the given probability, else divided by 1 - probability; in eval() it is
// the identity. Element i (in row-major order) of the c-th draw of a layer is kept or dropped by
// Philox4x32-10 keyed by (seed, iteration, micro-batch, layer, c), so the mask is the same
// whichever worker computes the micro-batch and whatever it computed before. Torch's own Dropout
// has this, too (Layer::draws), but one process has one generator: workers that are threads wait
// for each other there.
class Dropout : public torch::nn::Module {
 public:
  // 0 <= probability < 1, else c10::Error.
  explicit Dropout(double probability);

  // In training with a probability above 0 the thread must be in a MicroBatchScope (the ring's
  // training loop opens one), else c10::Error. Each such call is one draw of the current layer.
  at::Tensor forward(const at::Tensor& x);

 private:
  double probability_;
};

// InvalidArgument "model.dim is 0: wanted 1 to 65536".
absl::Status CheckRange(absl::string_view key, int64_t value, int64_t least, int64_t most);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_MODELS_H_
