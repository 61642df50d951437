// The residual network's layers, costs and initial values.
#include "integrations/torch/models/resnet.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "integrations/torch/models/parts.h"

namespace ringzero {
namespace {

// Convolution and batch norm; "conv.weight", "norm.weight", "norm.bias" and the norm's statistics.
class ConvNormLayer : public Layer {
 public:
  ConvNormLayer(int64_t in, int64_t out, int64_t stride)
      : conv_(register_module("conv", std::make_shared<Conv3x3Part>(in, out, stride))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(out))) {}

 protected:
  at::Tensor ConvNorm(const at::Tensor& x) { return norm_->forward(conv_->forward(x)); }

 private:
  std::shared_ptr<Conv3x3Part> conv_;
  torch::nn::BatchNorm2d norm_;
};

class StemLayer final : public ConvNormLayer {
 public:
  using ConvNormLayer::ConvNormLayer;
  TensorList forward(TensorList inputs) override {
    inputs[0] = ConvNorm(inputs[0]).relu_();
    return inputs;
  }
};

// {x} -> {x, h}
class FirstHalfLayer final : public ConvNormLayer {
 public:
  using ConvNormLayer::ConvNormLayer;
  TensorList forward(TensorList inputs) override {
    inputs.push_back(ConvNorm(inputs[0]).relu_());
    return inputs;
  }
};

// {x, h} -> {y}
class SecondHalfLayer final : public ConvNormLayer {
 public:
  explicit SecondHalfLayer(int64_t out) : ConvNormLayer(out, out, 1), out_(out) {}
  TensorList forward(TensorList inputs) override {
    at::Tensor y = ConvNorm(inputs[1]);
    return {y.add_(Shortcut(inputs[0])).relu_()};
  }

 private:
  at::Tensor Shortcut(const at::Tensor& x) const {
    const int64_t fewer = out_ - x.size(1);
    if (fewer == 0) return x;
    const at::Tensor half = x.slice(2, 0, c10::nullopt, 2).slice(3, 0, c10::nullopt, 2);
    return at::constant_pad_nd(half, {0, 0, 0, 0, fewer / 2, fewer - fewer / 2});
  }

  int64_t out_;
};

class HeadLayer final : public Layer {
 public:
  HeadLayer(int64_t in, int64_t classes)
      : linear_(register_module("linear", std::make_shared<LinearPart>(in, classes))) {}
  TensorList forward(TensorList inputs) override {
    return {linear_->forward(inputs[0].mean({2, 3}))};
  }

 private:
  std::shared_ptr<LinearPart> linear_;
};

// Convolutions as He et al. (2015) for ReLU, counted at the output; norms start as the identity.
void Initialize(const std::string& parameter, at::Tensor values, at::Generator generator) {
  if (values.dim() == 4) {
    FillNormal(values, std::sqrt(2.0 / static_cast<double>(9 * values.size(0))), generator);
  } else if (values.dim() == 2) {
    FillNormal(values, std::sqrt(1.0 / static_cast<double>(values.size(1))), generator);
  } else if (LastName(parameter) == "weight") {
    values.fill_(1.0);
  } else {
    values.zero_();
  }
}

// Of a convolution to `out` channels of size x size, its norm and its ReLU.
LayerCost ConvNormCost(int64_t in, int64_t out, int64_t size, InputGradient inputs) {
  const int64_t elements = out * size * size;
  return ProductCost(9 * in * elements, inputs) + NormCost(elements) + ElementwiseCost(elements);
}

// Collects the layers while following the image through the network.
class Maker {
 public:
  explicit Maker(const ResNetOptions& options)
      : options_(options), in_(options.width), size_(options.image_size) {}

  std::vector<LayerFactory> Make() && {
    const int64_t channels = options_.channels, width = options_.width;
    Add("stem", ConvNormCost(channels, width, size_, InputGradient::kNone),
        [=] { return std::make_shared<StemLayer>(channels, width, 1); });
    const int64_t blocks = (options_.depth - 2) / 6;
    for (int64_t block = 0; block < 3 * blocks; ++block) {
      const int64_t group = block / blocks;
      AddBlock(absl::StrCat("block", block), width << group,
               group > 0 && block % blocks == 0 ? 2 : 1);
    }
    const int64_t features = in_, classes = options_.classes;
    Add("head", ProductCost(features * classes) + ElementwiseCost(features * size_ * size_),
        [=] { return std::make_shared<HeadLayer>(features, classes); });
    return std::move(layers_);
  }

 private:
  void AddBlock(const std::string& name, int64_t out, int64_t stride) {
    const int64_t in = in_;
    size_ = (size_ + stride - 1) / stride;
    in_ = out;
    Add(name + ".first", ConvNormCost(in, out, size_, InputGradient::kNeeded),
        [=] { return std::make_shared<FirstHalfLayer>(in, out, stride); });
    Add(name + ".second",
        ConvNormCost(out, out, size_, InputGradient::kNeeded) +
            ElementwiseCost(out * size_ * size_),
        [=] { return std::make_shared<SecondHalfLayer>(out); });
  }

  void Add(std::string name, LayerCost cost, std::function<std::shared_ptr<Layer>()> build) {
    layers_.push_back({.name = std::move(name),
                       .build = std::move(build),
                       .cost = cost,
                       .initialize = Initialize});
  }

  const ResNetOptions& options_;
  int64_t in_;    // channels so far
  int64_t size_;  // pixels so far
  std::vector<LayerFactory> layers_;
};

}  // namespace

absl::Status CheckResNet(const ResNetOptions& options) {
  if (options.depth < 8 || options.depth % 6 != 2 || options.depth > 1202) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.depth is ", options.depth,
                     ": wanted 6n+2 with n = 1 to 200 (8, 14, 20, 32, 44, 56, 110, …)"));
  }
  if (options.width < 1 || options.width > 4096) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.width is ", options.width, ": wanted 1 to 4096"));
  }
  if (options.channels != 1 && options.channels != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.channels is ", options.channels, ": wanted 1 (grey) or 3 (colour)"));
  }
  if (options.classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat("the data has ", options.classes,
                                                   " classes: a residual network wants 2 or more"));
  }
  if (options.image_size < 4 || options.image_size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat("the data's images have ", options.image_size,
                                                   " rows: a residual network wants 4 to 4096"));
  }
  return absl::OkStatus();
}

std::vector<LayerFactory> MakeResNet(const ResNetOptions& options) {
  RZ_CHECK(CheckResNet(options).ok(), std::string(CheckResNet(options).message()));
  return Maker(options).Make();
}

}  // namespace ringzero
