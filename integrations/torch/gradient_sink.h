// GradientSink: takes a weight's gradient as a matrix product that is not computed yet.
//
//   if (GradientSink* sink = CurrentGradientSink(); sink != nullptr) …
//
// A RingModel is the sink of its computing thread while a training micro-batch is on, so that
// Linear (linear.h) need not make a gradient tensor that is only to be added to a sum. Used by one
// thread.
#ifndef RINGZERO_INTEGRATIONS_TORCH_GRADIENT_SINK_H_
#define RINGZERO_INTEGRATIONS_TORCH_GRADIENT_SINK_H_

#include <cstdint>
#include <memory>

#include "integrations/torch/torch.h"

namespace ringzero {

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Called when a forward reads `weight`, with or without a graph. Returns TakeProduct's `use`.
  virtual int64_t OnUse(const at::Tensor& weight) = 0;
  // The gradient of `weight` {out, in} is grad^T x, of grad {rows, out} and x {rows, in}. False:
  // the sink does not take the product, and the caller must give the gradient to autograd.
  virtual bool TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
                           const at::Tensor& x) = 0;
};

// Threads may keep the slot for longer than its sink lives: a sink that ends empties the slot.
struct GradientSinkSlot {
  GradientSink* sink = nullptr;
};

// This thread's sink, or nullptr.
GradientSink* CurrentGradientSink();
void SetCurrentGradientSink(std::shared_ptr<GradientSinkSlot> slot);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_GRADIENT_SINK_H_
