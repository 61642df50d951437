// Layers: what a model is cut into, and how a torch module or a function becomes one.
//
//   std::shared_ptr<Layer> in = MakeLayer(torch::nn::Linear(784, 256));
//   std::shared_ptr<Layer> act = MakeLayer([](at::Tensor x) { return x.relu(); });
//
// A layer is the smallest thing that a stage can begin or end with. It maps a list of tensors to a
// list of tensors: whatever a later stage needs (skip connections, masks) travels in that list.
// layer_factory.h says how layers are handed over.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LAYER_H_
#define RINGZERO_INTEGRATIONS_TORCH_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "integrations/torch/layer_factory.h"
#include "integrations/torch/torch.h"

namespace ringzero {

// A BatchNorm module that tracks running statistics and is in training mode. (A BatchNorm that the
// user has put into eval mode is frozen: its statistics are constants.)
struct BatchNormPart {
  std::string prefix;  // in the layer: "bn1." or ""
  at::Tensor mean, variance, count;
  std::optional<double> momentum;
  std::function<void(double)> set_momentum;
};

// A module with a fixed signature; parameters and buffers are registered as in any torch module.
class Layer : public torch::nn::Module {
 public:
  virtual TensorList forward(TensorList inputs) = 0;
  // The module whose parameters these are: this layer, or the module that it wraps (which has no
  // name of its own, so that modules() alone would miss it).
  virtual std::shared_ptr<torch::nn::Module> inner() { return shared_from_this(); }
  // What travels with the stage besides parameters. Unless a layer says otherwise: torch's
  // BatchNorm modules in inner().
  virtual std::vector<BatchNormPart> batch_norms();
  // Whether the forward draws from torch's default generator. If so, RingModel seeds the generator
  // before each forward of this layer by (seed, iteration, micro-batch, layer), so that what is
  // drawn does not depend on the number of workers, and puts its state back after. Unless a layer
  // says otherwise: whether inner() has a Dropout of torch's that is in training mode.
  virtual bool draws();
};

namespace layer_internal {

template <typename Holder>
class ModuleLayer final : public Layer {
 public:
  explicit ModuleLayer(Holder module) : module_(std::move(module)) {
    // The holder's parameters carry no extra prefix: "in.weight", not "in.module.weight".
    for (auto& p : module_->named_parameters(false)) {
      register_parameter(p.key(), p.value(), p.value().requires_grad());
    }
    for (auto& b : module_->named_buffers(false)) register_buffer(b.key(), b.value());
    for (auto& c : module_->named_children()) register_module(c.key(), c.value());
  }
  TensorList forward(TensorList inputs) override {
    inputs[0] = module_->forward(inputs[0]);
    return inputs;
  }
  std::shared_ptr<torch::nn::Module> inner() override { return module_->shared_from_this(); }
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    module_->train(on);
  }

 private:
  Holder module_;
};

class FunctionLayer final : public Layer {
 public:
  explicit FunctionLayer(std::function<TensorList(TensorList)> f) : f_(std::move(f)) {}
  TensorList forward(TensorList inputs) override { return f_(std::move(inputs)); }

 private:
  std::function<TensorList(TensorList)> f_;
};

}  // namespace layer_internal

// A torch module holder (torch::nn::Linear(…)) that maps the first tensor of the list, or a
// function of one tensor or of the whole list.
template <typename T>
std::shared_ptr<Layer> MakeLayer(T module_or_function) {
  // Modules first: asking whether a holder can be called with a list would compile its body.
  if constexpr (requires { module_or_function->named_parameters(); }) {
    return std::make_shared<layer_internal::ModuleLayer<T>>(std::move(module_or_function));
  } else if constexpr (std::is_invocable_r_v<TensorList, T, TensorList>) {
    return std::make_shared<layer_internal::FunctionLayer>(std::move(module_or_function));
  } else {
    static_assert(std::is_invocable_r_v<at::Tensor, T, at::Tensor>,
                  "a module, or a function of one tensor or of a list of tensors");
    return std::make_shared<layer_internal::FunctionLayer>(
        [f = std::move(module_or_function)](TensorList inputs) {
          inputs[0] = f(inputs[0]);
          return inputs;
        });
  }
}

// Which micro-batch and layer this thread is computing: what random numbers are keyed by.
//
//   MicroBatchScope scope({.seed = 1, .iteration = 7, .micro_batch = 2});
//   …  // a Dropout layer asks CurrentContext() for the key of its next mask
struct MicroBatchContext {
  uint64_t seed = 0;
  int64_t iteration = 0;
  int64_t micro_batch = 0;  // its number within the iteration
  int64_t layer = 0;        // the layer's index in the model, set by EnterLayer
  int64_t call = 0;         // draws so far in this layer and micro-batch
};

inline thread_local MicroBatchContext* current_context = nullptr;

// This thread's context, or nullptr outside of any scope.
inline MicroBatchContext* CurrentContext() { return current_context; }

class MicroBatchScope {
 public:
  explicit MicroBatchScope(MicroBatchContext context) : context_(context), outer_(current_context) {
    current_context = &context_;
  }
  ~MicroBatchScope() { current_context = outer_; }
  MicroBatchScope(const MicroBatchScope&) = delete;
  MicroBatchScope& operator=(const MicroBatchScope&) = delete;

 private:
  MicroBatchContext context_;
  MicroBatchContext* outer_;
};

// Sets the layer of the current context (if any) and starts its call counter again.
inline void EnterLayer(int64_t layer) {
  if (current_context == nullptr) return;
  current_context->layer = layer;
  current_context->call = 0;
}

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LAYER_H_
