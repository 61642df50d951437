// The perceptron's layers, costs and initial values.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/models/models.h"

namespace ringzero {
namespace {

struct Matrix {
  int64_t in = 0, out = 0;
  bool first = false, last = false;  // in the model
};

class LinearLayer final : public Layer {
 public:
  explicit LinearLayer(const Matrix& matrix)
      : weight_(register_parameter("weight", at::empty({matrix.out, matrix.in}))),
        bias_(register_parameter("bias", at::empty({matrix.out}))),
        matrix_(matrix) {}

  TensorList forward(TensorList inputs) override {
    at::Tensor& x = inputs[0];
    if (matrix_.first) x = x.flatten(1);
    x = Linear(x, weight_, bias_);
    if (!matrix_.last) x = x.relu();
    return inputs;
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  const Matrix matrix_;
};

LayerFactory MakeLinear(std::string name, const Matrix& matrix) {
  // He et al. 2015 before a ReLU; the logits start smaller.
  const double deviation = std::sqrt((matrix.last ? 1.0 : 2.0) / static_cast<double>(matrix.in));
  const auto inputs = matrix.first ? InputGradient::kNone : InputGradient::kNeeded;
  return {
      .name = std::move(name),
      .build = [matrix] { return std::make_shared<LinearLayer>(matrix); },
      .cost = ProductCost(matrix.in * matrix.out, inputs) + ElementwiseCost(2 * matrix.out),
      .initialize =
          [deviation](const std::string& parameter, at::Tensor values, at::Generator generator) {
            if (parameter == "weight") {
              values.normal_(0.0, deviation, generator);
            } else {
              values.zero_();
            }
          }};
}

}  // namespace

absl::StatusOr<std::vector<LayerFactory>> MakeMlp(const std::vector<int64_t>& sizes) {
  if (sizes.size() < 2) {
    return InvalidArgument("a perceptron (data.input, model.hidden, classes) has ", sizes.size(),
                           " sizes: at least two are wanted, the input's features and the classes");
  }
  for (const int64_t size : sizes) {
    RZ_RETURN_IF_ERROR(CheckRange("a size of the perceptron (data.input, model.hidden, classes)",
                                  size, 1, 1 << 24));
  }
  std::vector<LayerFactory> layers;
  const size_t count = sizes.size() - 1;
  for (size_t i = 0; i < count; ++i) {
    layers.push_back(
        MakeLinear(absl::StrCat("linear", i),
                   {.in = sizes[i], .out = sizes[i + 1], .first = i == 0, .last = i + 1 == count}));
  }
  return layers;
}

}  // namespace ringzero
