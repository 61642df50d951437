// Dropout whose mask is a function of what is computed, not of a process's generator.
//
//   class Block : public Layer {
//     Block() : dropout_(register_module("dropout", std::make_shared<Dropout>(0.1))) {}
//     …  x + dropout_->forward(h);
//   MakeDropoutLayer(0.1)   // a layer of its own
//
// In training each element is zero with the given probability, else divided by 1 - probability; in
// eval() it is the identity. Element i (in row-major order) of the c-th draw of a layer is kept or
// dropped by Philox4x32-10 keyed by (seed, iteration, micro-batch, layer, c), so the mask is the
// same whichever worker computes the micro-batch and whatever it computed before. torch's own
// Dropout is not: its generator belongs to the process.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_DROPOUT_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_DROPOUT_H_

#include <memory>

#include "integrations/torch/layer.h"
#include "integrations/torch/torch.h"

namespace ringzero {

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

// Dropout of the list's first tensor.
std::shared_ptr<Layer> MakeDropoutLayer(double probability);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_DROPOUT_H_
