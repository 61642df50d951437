// Linear: at::linear, whose weight gradient is added to the travelling sum by the product itself.
//
//   inputs[0] = Linear(inputs[0], weight_, bias_);   // in a layer's forward
//
// The bits are at::linear's, forward and backward, with and without a RingModel. Within a
// RingModel, the gradient of a weight that one Linear uses once per micro-batch is not handed to
// autograd: the user's hooks on that weight's gradient do not run. A weight that is also read
// elsewhere is an error there (use at::linear). Autograd takes everything else: tied weights,
// several Linears, recomputed segments, create_graph, autocast, tensors that are not contiguous.
// Thread-safe, as at::linear is.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_
#define RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_

#include <cstdint>
#include <memory>

#include "integrations/torch/torch.h"

namespace ringzero {

// x {…, in}, weight {out, in}, bias {out} or undefined: {…, out}.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// sum {out, in} += grad^T x, one addition to each value, as if the product had been computed first.
// False, and nothing is done, if this library's product with an addition rounds otherwise (it adds
// blocks of rows one by one). A trial finds that out, once per thread and shape. Fewer than 64
// outputs or inputs, or more than 8192 rows, are not tried: false.
bool AddProduct(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& sum);

// Takes a weight's gradient as a matrix product that is not computed yet. A RingModel is the sink
// of its computing thread while a training micro-batch is on, so that Linear need not make a
// gradient tensor that is only to be added to a sum. Used by one thread.
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

// This thread's sink; nullptr: it has none, or its sink is gone.
GradientSink* CurrentGradientSink();
void SetCurrentGradientSink(std::weak_ptr<GradientSink> sink);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_
