// Parts that the models share: parameters without initial values, what their arithmetic costs, and
// Dropout.
//
// A part's parameters are not filled when it is built, so building a layer is cheap however large
// it is and touches no page of memory; LayerFactory::initialize gives the values, one parameter at
// a time.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_PARTS_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/linear.h"
#include "integrations/torch/torch.h"

namespace ringzero {

enum class Bias { kNone, kPresent };

// y = x W^T + b. Parameters "weight" {out, in} and "bias" {out}.
class LinearPart : public torch::nn::Module {
 public:
  LinearPart(int64_t in, int64_t out, Bias bias = Bias::kPresent);
  at::Tensor forward(const at::Tensor& x) { return Linear(x, weight_, bias_); }

 private:
  at::Tensor weight_;
  at::Tensor bias_;  // undefined without one
};

struct ConvShape {
  int64_t in = 1;  // channels
  int64_t out = 1;
  int64_t kernel = 3;  // odd; the padding keeps the image's size
  int64_t stride = 1;
};

// Square convolution without bias. Parameter "weight" {out, in, kernel, kernel}.
class ConvPart : public torch::nn::Module {
 public:
  explicit ConvPart(const ConvShape& shape);
  at::Tensor forward(const at::Tensor& x) {
    const int64_t padding = shape_.kernel / 2;
    return at::conv2d(x, weight_, {}, {shape_.stride, shape_.stride}, {padding, padding});
  }

 private:
  at::Tensor weight_;
  ConvShape shape_;
};

// The last part of a dotted parameter name: "weight" of "conv.weight".
std::string LastName(const std::string& parameter);

// FLOPs of one sample; a multiply-add counts 2. Elementwise work counts what it reads and computes
// roughly, so that a layer of it alone is not free.
enum class InputGradient { kNone, kNeeded };
// A matrix product or convolution of `multiply_adds`: backward makes the weights' gradient and,
// unless nothing before it learns, the inputs'.
LayerCost ProductCost(int64_t multiply_adds, InputGradient inputs = InputGradient::kNeeded);
LayerCost NormCost(int64_t elements);         // batch or layer norm: forward 8, backward 16
LayerCost ElementwiseCost(int64_t elements);  // ReLU, a sum: forward 1, backward 1
LayerCost operator+(LayerCost a, LayerCost b);

// Dropout whose mask is a function of what is computed, not of a process's generator.
//
//   class Block : public Layer {
//     Block() : dropout_(register_module("dropout", std::make_shared<Dropout>(0.1))) {}
//     …  x + dropout_->forward(h);
//
// In training each element is zero with the given probability, else divided by 1 - probability; in
// eval() it is the identity. Element i (in row-major order) of the c-th draw of a layer is kept or
// dropped by Philox4x32-10 keyed by (seed, iteration, micro-batch, layer, c), so the mask is the
// same whichever worker computes the micro-batch and whatever it computed before. Torch's own
// Dropout has this, too (Layer::draws), but one process has one generator: workers that are threads
// wait for each other there.
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

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_PARTS_H_
