// Parameters without initial values, their initial values, and costs.
#include "integrations/torch/models/parts.h"

namespace ringzero {

LinearPart::LinearPart(int64_t in, int64_t out, Bias bias)
    : weight_(register_parameter("weight", at::empty({out, in}))) {
  if (bias == Bias::kPresent) bias_ = register_parameter("bias", at::empty({out}));
}

ConvPart::ConvPart(const ConvShape& shape)
    : weight_(register_parameter("weight",
                                 at::empty({shape.out, shape.in, shape.kernel, shape.kernel}))),
      shape_(shape) {}

void FillNormal(at::Tensor values, double standard_deviation, at::Generator generator) {
  values.normal_(0.0, standard_deviation, generator);
}

std::string LastName(const std::string& parameter) {
  return parameter.substr(parameter.rfind('.') + 1);  // npos + 1 is 0: the whole name
}

LayerCost ProductCost(int64_t multiply_adds, InputGradient inputs) {
  const int64_t products = inputs == InputGradient::kNeeded ? 2 : 1;
  return {.forward = 2 * multiply_adds, .backward = 2 * multiply_adds * products};
}

LayerCost NormCost(int64_t elements) {
  return {.forward = 8 * elements, .backward = 16 * elements};
}

LayerCost ElementwiseCost(int64_t elements) { return {.forward = elements, .backward = elements}; }

LayerCost operator+(LayerCost a, LayerCost b) {
  return {.forward = a.forward + b.forward, .backward = a.backward + b.backward};
}

}  // namespace ringzero
