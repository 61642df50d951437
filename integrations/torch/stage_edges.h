// Stage edges: the autograd nodes at a stage's borders, and the hooks of its gradients.
//
//   inputs = AttachEdgeIn(slot, place, inputs);      // its backward: OnStageEnd
//   … the stage's layers …
//   outputs = AttachEdgeOut(slot, place, outputs);   // its backward: OnStageBegin
//
// Nodes of our own rather than torch::autograd::Function: they pass undefined gradients on as they
// are and make no view of their input, so a graph with edges computes the very bits of one without.
#ifndef RINGZERO_INTEGRATIONS_TORCH_STAGE_EDGES_H_
#define RINGZERO_INTEGRATIONS_TORCH_STAGE_EDGES_H_

#include <cstdint>
#include <memory>

#include "integrations/torch/layer.h"

namespace ringzero {

// Which pass of which stage an edge belongs to.
struct EdgePlace {
  int stage = 0;
  int64_t pass = 0;  // number of the forward in this model: tells a graph of an earlier forward
};

// Called from inside backward, on the thread that runs it; may throw.
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  virtual void OnStageBegin(EdgePlace place) = 0;
  virtual void OnStageEnd(EdgePlace place) = 0;
  // `parameter`: index in the stage's layout; its .grad is complete.
  virtual void OnGradient(int stage, int parameter) = 0;
};

// Graphs may outlive the model: they hold the slot (hence shared), and the model empties it.
struct ListenerSlot {
  BackwardListener* listener = nullptr;
};

// Only tensors that require a gradient pass through the node; without any there is no node.
TensorList AttachEdgeIn(const std::shared_ptr<ListenerSlot>& slot, EdgePlace place,
                        TensorList inputs);
TensorList AttachEdgeOut(const std::shared_ptr<ListenerSlot>& slot, EdgePlace place,
                         TensorList outputs);

// Calls OnGradient whenever the gradient of `tensor` has been accumulated, while this lives. It is
// a hook of the node that accumulates: a tensor has one slot for hooks of its own, and a user may
// take it (register_post_accumulate_grad_hook).
class GradientHook {
 public:
  GradientHook(const std::shared_ptr<ListenerSlot>& slot, int stage, int parameter,
               const at::Tensor& tensor);
  GradientHook(GradientHook&&) = default;
  ~GradientHook();

 private:
  std::shared_ptr<torch::autograd::Node> accumulator_;  // autograd keeps it only while in use
  uintptr_t key_ = 0;
};

// Makes the gradients of every use of `tied` flow to `target`, where autograd adds them up as if
// both were one tensor. The returned holder must live as long as that is wanted.
std::shared_ptr<void> ShareAccumulator(const at::Tensor& target, const at::Tensor& tied);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_STAGE_EDGES_H_
