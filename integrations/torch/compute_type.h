// The type in which layers compute: of their parameters, of what enters the first stage, and back.
//
//   CastLayer(*layer, ScalarTypeOf(ValueType::kBf16));       // as module.to(dtype)
//   outputs = OutputsForLoss(std::move(outputs), 1024);      // fp32; gradients times 1024
//
// As DeepSpeed does it: parameters and floating buffers have the type, floating inputs are cast to
// it. What the last stage gives is fp32 again, so that losses are computed in fp32.
#ifndef RINGZERO_INTEGRATIONS_TORCH_COMPUTE_TYPE_H_
#define RINGZERO_INTEGRATIONS_TORCH_COMPUTE_TYPE_H_

#include "integrations/torch/layer.h"
#include "integrations/torch/torch.h"
#include "zero/update/value_type.h"

namespace ringzero {

at::ScalarType ScalarTypeOf(ValueType type);

// In place: the tensors stay who they are. Integers stay as they are.
void CastLayer(Layer& layer, at::ScalarType type);

TensorList CastFloating(TensorList tensors, at::ScalarType type);

// Floating outputs in fp32. Their gradients are multiplied by `scale` in fp32 and then rounded to
// the outputs' own type: what is too small for fp16 is not lost on the way into the model.
TensorList OutputsForLoss(TensorList outputs, double scale);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_COMPUTE_TYPE_H_
