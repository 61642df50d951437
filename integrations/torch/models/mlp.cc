// The perceptron's layers, costs and initial values.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "integrations/torch/models/models.h"
#include "integrations/torch/models/parts.h"

namespace ringzero {
namespace {

enum class Position { kFirst, kMiddle, kLast, kOnly };

class LinearLayer final : public Layer {
 public:
  LinearLayer(int64_t in, int64_t out, Position position)
      : weight_(register_parameter("weight", at::empty({out, in}))),
        bias_(register_parameter("bias", at::empty({out}))),
        position_(position) {}

  TensorList forward(TensorList inputs) override {
    at::Tensor& x = inputs[0];
    if (position_ == Position::kFirst || position_ == Position::kOnly) x = x.flatten(1);
    x = Linear(x, weight_, bias_);
    if (position_ == Position::kFirst || position_ == Position::kMiddle) x = x.relu();
    return inputs;
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  Position position_;
};

LayerFactory MakeLinear(int64_t in, int64_t out, Position position) {
  const bool first = position == Position::kFirst || position == Position::kOnly;
  LayerFactory factory;
  factory.build = [=] { return std::make_shared<LinearLayer>(in, out, position); };
  factory.cost = ProductCost(in * out, first ? InputGradient::kNone : InputGradient::kNeeded) +
                 ElementwiseCost(2 * out);
  // He et al. 2015 before a ReLU; the logits start smaller.
  const bool relu = position == Position::kFirst || position == Position::kMiddle;
  const double deviation = std::sqrt((relu ? 2.0 : 1.0) / static_cast<double>(in));
  factory.initialize = [deviation](const std::string& parameter, at::Tensor values,
                                   at::Generator generator) {
    if (parameter == "weight") {
      values.normal_(0.0, deviation, generator);
    } else {
      values.zero_();
    }
  };
  return factory;
}

}  // namespace

absl::Status CheckMlp(const MlpOptions& options) {
  if (options.sizes.size() < 2) {
    return InvalidArgument("a perceptron (data.input, model.hidden, classes) has ",
                           options.sizes.size(),
                           " sizes: at least two are wanted, the input's features and the classes");
  }
  for (int64_t size : options.sizes) {
    RZ_RETURN_IF_ERROR(CheckRange("a size of the perceptron (data.input, model.hidden, classes)",
                                  size, 1, 1 << 24));
  }
  return absl::OkStatus();
}

std::vector<LayerFactory> MakeMlp(const MlpOptions& options) {
  RZ_CHECK(CheckMlp(options).ok(), std::string(CheckMlp(options).message()));
  std::vector<LayerFactory> layers;
  const size_t count = options.sizes.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    const Position position = count == 1       ? Position::kOnly
                              : i == 0         ? Position::kFirst
                              : i + 1 == count ? Position::kLast
                                               : Position::kMiddle;
    layers.push_back(MakeLinear(options.sizes[i], options.sizes[i + 1], position));
    layers.back().name = absl::StrCat("linear", i);
  }
  return layers;
}

}  // namespace ringzero
