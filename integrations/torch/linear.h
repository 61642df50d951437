// Linear: at::linear whose weight gradient is added to the sum that travels by the product itself.
//
//   inputs[0] = Linear(inputs[0], weight_, bias_);   // in a layer's forward
//
// The bits are at::linear's, forward and backward, with and without a RingModel. Within one, the
// gradient of a weight that one Linear uses once per micro-batch is not handed to autograd: hooks
// of the user's on that weight's gradient do not run. A weight that is read elsewhere, too,
// is an error there (use at::linear). Everything else (tied weights, several Linears, recomputed
// segments, create_graph, autocast, what is not contiguous) goes autograd's way. Thread-safe, as
// at::linear is.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_
#define RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_

#include "integrations/torch/torch.h"

namespace ringzero {

// x {…, in}, weight {out, in}, bias {out} or undefined: {…, out}.
at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// sum {out, in} += grad^T x, one addition to each value, as if the product had been computed first.
// False, and nothing done, where this library's product with an addition rounds otherwise (blocks
// of rows are added one by one): tried out once per thread and shape, and not for fewer than 64
// outputs or inputs, nor more than 8192 rows.
bool AddProduct(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& sum);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LINEAR_H_
