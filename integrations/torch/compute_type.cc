// Casts.
#include "integrations/torch/compute_type.h"

#include "integrations/torch/layer_parts.h"

namespace ringzero {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ForLoss : torch::autograd::Function<ForLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double scale) {
    context->set_materialize_grads(false);  // an output that the loss does not need has no gradient
    context->saved_data["scale"] = scale;
    context->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    return x.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradients[0].mul(context->saved_data["scale"].toDouble()).to(type), at::Tensor()};
  }
};

void Cast(const at::Tensor& tensor, at::ScalarType type) {
  if (!tensor.defined() || !tensor.is_floating_point()) return;
  at::Tensor(tensor).set_data(tensor.detach().to(type));
}

}  // namespace

at::ScalarType ScalarTypeOf(ValueType type) {
  switch (type) {
    case ValueType::kFp32: return at::kFloat;
    case ValueType::kBf16: return at::kBFloat16;
    case ValueType::kFp16: return at::kHalf;
  }
  return at::kFloat;
}

void CastLayer(Layer& layer, at::ScalarType type) {
  for (const NamedTensor& parameter : ParametersOf(layer)) Cast(parameter.tensor, type);
  for (const BatchNormPart& norm : BatchNormsOf(layer)) {
    Cast(norm.mean, type);
    Cast(norm.variance, type);
  }
  for (const NamedTensor& constant : ConstantsOf(layer)) Cast(constant.tensor, type);
}

TensorList CastFloating(TensorList tensors, at::ScalarType type) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(type);
  }
  return tensors;
}

TensorList OutputsForLoss(TensorList outputs, double scale) {
  for (at::Tensor& output : outputs) {
    if (!output.defined() || !output.is_floating_point()) continue;
    const bool learns = at::GradMode::is_enabled() && output.requires_grad();
    output = learns ? ForLoss::apply(output, scale) : output.to(at::kFloat);
  }
  return outputs;
}

}  // namespace ringzero
