// The residual network's layers, costs and initial values.
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/models/models.h"

namespace ringzero {
namespace {

struct ConvShape {
  int64_t in = 1;  // channels
  int64_t out = 1;
  int64_t kernel = 3;  // odd; the padding keeps the image's size
  int64_t stride = 1;
};

// Square convolution without bias. Parameter "weight" {out, in, kernel, kernel}.
class ConvPart final : public torch::nn::Module {
 public:
  explicit ConvPart(const ConvShape& shape)
      : shape_(shape),
        weight_(register_parameter("weight",
                                   at::empty({shape.out, shape.in, shape.kernel, shape.kernel}))) {}
  at::Tensor forward(const at::Tensor& x) {
    const int64_t padding = shape_.kernel / 2;
    return at::conv2d(x, weight_, {}, {shape_.stride, shape_.stride}, {padding, padding});
  }

 private:
  const ConvShape shape_;
  at::Tensor weight_;
};

// Convolution, batch norm and ReLU of the last tensor: the stem, and the second of a bottleneck's
// three. "conv.weight", "norm.weight", "norm.bias" and the norm's statistics.
class ConvNormLayer : public Layer {
 public:
  explicit ConvNormLayer(const ConvShape& shape)
      : conv_(register_module("conv", std::make_shared<ConvPart>(shape))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(shape.out))) {}
  TensorList forward(TensorList inputs) override {
    inputs.back() = ConvNorm(inputs.back()).relu_();
    return inputs;
  }
  at::Tensor ConvNorm(const at::Tensor& x) { return norm_->forward(conv_->forward(x)); }

 private:
  std::shared_ptr<ConvPart> conv_;
  torch::nn::BatchNorm2d norm_;
};

// {x} -> {s, h}: a block's first convolution. s is x, or its projection to the block's output.
class FirstLayer final : public ConvNormLayer {
 public:
  explicit FirstLayer(const ConvShape& shape) : ConvNormLayer(shape) {}
  FirstLayer(const ConvShape& shape, const ConvShape& projection)
      : ConvNormLayer(shape),
        shortcut_(register_module("shortcut", std::make_shared<ConvNormLayer>(projection))) {}
  TensorList forward(TensorList inputs) override {
    inputs.push_back(ConvNorm(inputs[0]).relu_());
    if (shortcut_ != nullptr) inputs[0] = shortcut_->ConvNorm(inputs[0]);
    return inputs;
  }

 private:
  std::shared_ptr<ConvNormLayer> shortcut_;  // null: s is x
};

// {s, h} -> {y}: a block's last convolution and the sum with its shortcut.
class LastLayer final : public ConvNormLayer {
 public:
  explicit LastLayer(const ConvShape& shape) : ConvNormLayer(shape), out_(shape.out) {}
  TensorList forward(TensorList inputs) override {
    at::Tensor y = ConvNorm(inputs[1]);
    return {y.add_(Shortcut(inputs[0])).relu_()};
  }

 private:
  // If x has fewer channels than the output: the shortcut of option A.
  at::Tensor Shortcut(const at::Tensor& x) const {
    const int64_t fewer = out_ - x.size(1);
    if (fewer == 0) return x;
    const at::Tensor half = x.slice(2, 0, c10::nullopt, 2).slice(3, 0, c10::nullopt, 2);
    return at::constant_pad_nd(half, {0, 0, 0, 0, fewer / 2, fewer - fewer / 2});
  }

  int64_t out_;
};

class ResNetHead final : public Layer {
 public:
  ResNetHead(int64_t in, int64_t classes)
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
    const int64_t fan_out = values.size(0) * values.size(2) * values.size(3);
    values.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_out)), generator);
  } else if (values.dim() == 2) {
    values.normal_(0.0, std::sqrt(1.0 / static_cast<double>(values.size(1))), generator);
  } else {
    StartAsIdentity(parameter, values);
  }
}

// What distinguishes one depth from another.
struct Family {
  std::vector<int64_t> blocks;  // of each group
  int64_t width = 16;           // unless given
  enum class Block { kBasic, kBottleneck } block = Block::kBasic;
  enum class Shortcut { kPadded, kProjected } shortcut = Shortcut::kPadded;
};

Family FamilyOf(int64_t depth) {
  Family imagenet{.width = 64, .shortcut = Family::Shortcut::kProjected};
  switch (depth) {
    case 18: imagenet.blocks = {2, 2, 2, 2}; return imagenet;
    case 50: imagenet.block = Family::Block::kBottleneck; [[fallthrough]];
    case 34: imagenet.blocks = {3, 4, 6, 3}; return imagenet;
    default: return {.blocks = std::vector<int64_t>(3, (depth - 2) / 6)};
  }
}

constexpr int64_t kBottleneckFactor = 4;  // channels between bottlenecks, to those within

// Cost of a convolution with outputs of size x size, and of its norm.
LayerCost ConvNormCost(const ConvShape& shape, int64_t size, InputGradient inputs) {
  const int64_t elements = shape.out * size * size;
  return ProductCost(shape.kernel * shape.kernel * shape.in * elements, inputs) +
         NormCost(elements);
}

// Collects the layers while following the image through the network.
class Maker {
 public:
  explicit Maker(const ResNetOptions& options)
      : options_(options),
        family_(FamilyOf(options.depth)),
        in_(options.width > 0 ? options.width : family_.width),
        size_(options.image_size) {}

  std::vector<LayerFactory> Make() && {
    const int64_t width = in_;
    AddConv<ConvNormLayer>("stem", {.in = options_.channels, .out = width}, InputGradient::kNone);
    int64_t number = 0;
    for (size_t group = 0; group < family_.blocks.size(); ++group) {
      for (int64_t block = 0; block < family_.blocks[group]; ++block) {
        AddBlock(absl::StrCat("block", number++), width << group, group > 0 && block == 0 ? 2 : 1);
      }
    }
    const int64_t features = in_, classes = options_.classes;
    Add("head", ProductCost(features * classes) + ElementwiseCost(features * size_ * size_),
        [=] { return std::make_shared<ResNetHead>(features, classes); });
    return std::move(layers_);
  }

 private:
  void AddBlock(const std::string& name, int64_t width, int64_t stride) {
    const bool bottleneck = family_.block == Family::Block::kBottleneck;
    const int64_t in = in_, out = bottleneck ? kBottleneckFactor * width : width;
    // As in torchvision, a bottleneck halves the image in its 3x3 convolution.
    const ConvShape first{
        .in = in, .out = width, .kernel = bottleneck ? 1 : 3, .stride = bottleneck ? 1 : stride};
    const ConvShape shortcut{.in = in, .out = out, .kernel = 1, .stride = stride};
    const int64_t shortcut_size = Strided(stride);
    AddConv<FirstLayer>(name + ".first", first);
    if (family_.shortcut == Family::Shortcut::kProjected && (stride != 1 || in != out)) {
      layers_.back().cost =
          *layers_.back().cost + ConvNormCost(shortcut, shortcut_size, InputGradient::kNeeded);
      layers_.back().build = [=] { return std::make_shared<FirstLayer>(first, shortcut); };
    }
    if (bottleneck) {
      AddConv<ConvNormLayer>(name + ".second", {.in = width, .out = width, .stride = stride});
    }
    AddConv<LastLayer>(name + (bottleneck ? ".third" : ".second"),
                       {.in = width, .out = out, .kernel = bottleneck ? 1 : 3});
    layers_.back().cost = *layers_.back().cost + ElementwiseCost(out * size_ * size_);
    in_ = out;
  }

  int64_t Strided(int64_t stride) const { return (size_ + stride - 1) / stride; }

  // Adds a convolution with its norm and ReLU.
  template <typename ConvLayer>
  void AddConv(std::string name, const ConvShape& shape,
               InputGradient inputs = InputGradient::kNeeded) {
    size_ = Strided(shape.stride);
    Add(std::move(name),
        ConvNormCost(shape, size_, inputs) + ElementwiseCost(shape.out * size_ * size_),
        [=] { return std::make_shared<ConvLayer>(shape); });
  }

  void Add(std::string name, LayerCost cost, std::function<std::shared_ptr<Layer>()> build) {
    layers_.push_back({.name = std::move(name),
                       .build = std::move(build),
                       .cost = cost,
                       .initialize = Initialize});
  }

  const ResNetOptions& options_;
  const Family family_;
  int64_t in_;    // channels so far
  int64_t size_;  // pixels so far
  std::vector<LayerFactory> layers_;
};

absl::Status CheckResNet(const ResNetOptions& options) {
  const bool imagenet = FamilyOf(options.depth).shortcut == Family::Shortcut::kProjected;
  if (!imagenet && (options.depth < 8 || options.depth % 6 != 2 || options.depth > 1202)) {
    return InvalidArgument(
        "model.depth is ", options.depth,
        ": wanted 18, 34 or 50, or 6n+2 with n = 1 to 200 (8, 14, 20, 32, 44, 56, 110, …)");
  }
  RZ_RETURN_IF_ERROR(CheckRange("model.width", options.width, 0, 4096));
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("model.channels is ", options.channels,
                           ": wanted 1 (grey) or 3 (colour)");
  }
  RZ_RETURN_IF_ERROR(CheckRange("the data's number of classes", options.classes, 2, 1 << 24));
  return CheckRange("the data's number of rows", options.image_size, 4, 4096);
}

}  // namespace

absl::StatusOr<std::vector<LayerFactory>> MakeResNet(const ResNetOptions& options) {
  RZ_RETURN_IF_ERROR(CheckResNet(options));
  return Maker(options).Make();
}

}  // namespace ringzero
