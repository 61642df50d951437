// Layer factories: how a model is handed to RingZero, one layer at a time, never whole.
//
//   std::vector<LayerFactory> model = {
//       {.name = "in",  .build = [] { return MakeLayer(torch::nn::Linear(784, 256)); }},
//       {.name = "act", .build = [] { return MakeLayer([](at::Tensor x) { return x.relu(); }); }},
//       {.name = "out", .build = [] { return MakeLayer(torch::nn::Linear(256, 10)); }}};
//
// A layer is the smallest thing that a stage can begin or end with. It maps a list of tensors to a
// list of tensors: whatever a later stage needs (skip connections, masks) travels in that list.
// Building a layer must be cheap and repeatable: every worker builds every layer, and keeps no
// memory for the parameters that it does not own.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LAYER_H_
#define RINGZERO_INTEGRATIONS_TORCH_LAYER_H_

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ringzero {

using TensorList = std::vector<at::Tensor>;

// A module with a fixed signature; parameters and buffers are registered as in any torch module.
class Layer : public torch::nn::Module {
 public:
  virtual TensorList forward(TensorList inputs) = 0;
  // The module whose parameters these are: itself, or the one that it wraps (which has no name of
  // its own, so that modules() alone would miss it).
  virtual std::shared_ptr<torch::nn::Module> inner() { return shared_from_this(); }
};

// Integer costs of one sample's forward and backward, in FLOPs (a multiply-add counts 2).
struct LayerCost {
  int64_t forward = 0;
  int64_t backward = 0;
};

// Says that a parameter of this layer *is* a parameter of an earlier one (an LM head's embedding).
struct TiedParameter {
  std::string parameter;  // in this layer: "weight"
  std::string target;     // full name of the earlier one: "embedding.weight"
};

struct LayerFactory {
  std::string name;  // unique; a parameter's full name is "<name>.<its name in the layer>"
  std::function<std::shared_ptr<Layer>()> build;
  // Absent: counted for Linear, Conv, Embedding, norms and attention; anything else is an error.
  std::optional<LayerCost> cost = std::nullopt;
  std::vector<TiedParameter> tied = {};
  // Fills one parameter with its initial values, drawing only from `generator`, which is seeded by
  // (seed, full name). Absent: what `build` gave, under torch's generator seeded by (seed, layer
  // name).
  std::function<void(const std::string& parameter, at::Tensor values, at::Generator generator)>
      initialize = nullptr;
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
  std::shared_ptr<torch::nn::Module> inner() override {
    if constexpr (requires { module_.ptr(); }) {
      return module_.ptr();
    } else {
      return module_;
    }
  }
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    module_->train(on);
  }
  Holder& module() { return module_; }

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

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LAYER_H_
