// Autograd nodes and hooks.
#include "integrations/torch/stage_edges.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace ringzero {
namespace {

using torch::autograd::variable_list;

class EdgeNode : public torch::autograd::Node {
 public:
  enum class Side { kIn, kOut };
  EdgeNode(std::shared_ptr<ListenerSlot> slot, EdgePlace place, Side side,
           torch::autograd::edge_list&& next)
      : Node(std::move(next)), slot_(std::move(slot)), place_(place), side_(side) {}

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(slot_->listener != nullptr, "backward through stage ", place_.stage,
                " of a RingModel that is gone");
    if (side_ == Side::kIn) {
      slot_->listener->OnStageEnd(place_);
    } else {
      slot_->listener->OnStageBegin(place_);
    }
    return std::move(gradients);
  }

  std::string name() const override {
    return side_ == Side::kIn ? "RingZeroEdgeIn" : "RingZeroEdgeOut";
  }

 private:
  std::shared_ptr<ListenerSlot> slot_;
  EdgePlace place_;
  Side side_;
};

TensorList Attach(const std::shared_ptr<ListenerSlot>& slot, EdgePlace place, EdgeNode::Side side,
                  TensorList tensors) {
  variable_list through;
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& x : tensors) {
      if (x.defined() && x.requires_grad()) through.push_back(x);
    }
  }
  if (through.empty()) return tensors;
  const std::shared_ptr<torch::autograd::Node> node(
      new EdgeNode(slot, place, side, torch::autograd::collect_next_edges(through)),
      torch::autograd::deleteNode);
  for (at::Tensor& x : tensors) {
    if (!x.defined() || !x.requires_grad()) continue;
    // Not x itself: x keeps its place in the graph of the stage that made it.
    x = x.detach();
    torch::autograd::create_gradient_edge(x, node);
  }
  return tensors;
}

class TellGradient : public torch::autograd::FunctionPostHook {
 public:
  TellGradient(std::shared_ptr<ListenerSlot> slot, int stage, int parameter)
      : slot_(std::move(slot)), stage_(stage), parameter_(parameter) {}
  variable_list operator()(const variable_list& outputs, const variable_list& gradients) override {
    const bool some = !gradients.empty() && gradients[0].defined();
    if (some && slot_->listener != nullptr) slot_->listener->OnGradient(stage_, parameter_);
    return outputs;
  }

 private:
  std::shared_ptr<ListenerSlot> slot_;
  int stage_;
  int parameter_;
};

}  // namespace

TensorList AttachEdgeIn(const std::shared_ptr<ListenerSlot>& slot, EdgePlace place,
                        TensorList inputs) {
  return Attach(slot, place, EdgeNode::Side::kIn, std::move(inputs));
}

TensorList AttachEdgeOut(const std::shared_ptr<ListenerSlot>& slot, EdgePlace place,
                         TensorList outputs) {
  return Attach(slot, place, EdgeNode::Side::kOut, std::move(outputs));
}

GradientHook::GradientHook(const std::shared_ptr<ListenerSlot>& slot, int stage, int parameter,
                           const at::Tensor& tensor)
    : accumulator_(torch::autograd::impl::grad_accumulator(tensor)),
      key_(accumulator_->add_post_hook(std::make_unique<TellGradient>(slot, stage, parameter))) {}

GradientHook::~GradientHook() {
  if (accumulator_ != nullptr) accumulator_->del_post_hook(key_);
}

std::shared_ptr<void> ShareAccumulator(const at::Tensor& target, const at::Tensor& tied) {
  std::shared_ptr<torch::autograd::Node> accumulator =
      torch::autograd::impl::grad_accumulator(target);
  torch::autograd::impl::set_grad_accumulator(tied, accumulator);
  return accumulator;
}

}  // namespace ringzero
