// Twins of Python modules. RingModel's destructor puts modes back, which runs Python's code: an
// exception there (Ctrl-C) is dropped.
#include "python/bindings/python_layers.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "absl/strings/str_split.h"
#include "integrations/torch/layer_parts.h"

namespace ringzero::python {
namespace {

using torch::nn::Module;

// Registers a tensor under a path with dots, which torch allows in no single name.
void RegisterAt(Module& root, const std::string& path, const at::Tensor& tensor, bool buffer) {
  std::vector<std::string> names = absl::StrSplit(path, '.');
  const std::string last = names.back();
  names.pop_back();
  Module* at = &root;
  for (const std::string& name : names) {
    const auto children = at->named_children();
    const std::shared_ptr<Module>* known = children.find(name);
    at = known != nullptr ? known->get()
                          : at->register_module(name, std::make_shared<Module>(name)).get();
  }
  if (buffer) {
    at->register_buffer(last, tensor);
  } else {
    at->register_parameter(last, tensor, tensor.requires_grad());
  }
}

// The mode of the whole Python module.
class Whole final : public Module {
 public:
  explicit Whole(PyHandle set_training) : set_training_(std::move(set_training)) { train(true); }
  void train(bool on = true) override {
    Module::train(on);
    CallPython([&] { (*set_training_)(on); });
  }

 private:
  const PyHandle set_training_;
};

class Twin final : public MarkedLayer {
 public:
  Twin(std::shared_ptr<Module> whole, const PyHandle& run, std::shared_ptr<const PythonPart> part)
      : MarkedLayer(std::move(whole),
                    [run](Module&, StageMarks& marks, const TensorList& inputs) {
                      return CallPython([&] {
                        const auto lent = py::return_value_policy::reference;
                        return (*run)(py::cast(&marks, lent), inputs).cast<TensorList>();
                      });
                    }),
        part_(std::move(part)) {
    for (const auto& [path, tensor] : part_->parameters) RegisterAt(*this, path, tensor, false);
    for (const auto& [path, tensor] : part_->buffers) RegisterAt(*this, path, tensor, true);
  }

  std::vector<BatchNormPart> batch_norms() override { return part_->norms; }
  bool draws() override { return true; }  // what Python calls cannot be known

 private:
  const std::shared_ptr<const PythonPart> part_;
};

// The object that lives, or a new one.
template <typename T, typename Make>
std::shared_ptr<T> Living(std::weak_ptr<T>& known, const Make& make) {
  std::shared_ptr<T> living = known.lock();
  if (living == nullptr) known = living = make();
  return living;
}

}  // namespace

std::vector<LayerFactory> FactoriesOf(const PythonModel& model, uint64_t seed) {
  const auto whole = std::make_shared<std::weak_ptr<Module>>();
  std::vector<LayerFactory> factories;
  for (const PythonPart& each : model.parts) {
    const auto part = std::make_shared<const PythonPart>(each);
    const auto twin = std::make_shared<std::weak_ptr<Layer>>();
    LayerFactory& factory = factories.emplace_back();
    factory.name = part->name;
    factory.cost = part->cost;
    for (const auto& [parameter, target] : part->tied) factory.tied.push_back({parameter, target});
    factory.build = [=, run = model.run, set_training = model.set_training] {
      return Living(*twin, [&]() -> std::shared_ptr<Layer> {
        const auto make = [&] { return std::make_shared<Whole>(set_training); };
        return std::make_shared<Twin>(Living(*whole, make), run, part);
      });
    };
    factory.ready = part->initial == nullptr;
    if (factory.ready) continue;
    factory.initialize = [=](const std::string& path, at::Tensor values, at::Generator) {
      const SeededScope seeded(InitializationKey(seed, part->name));
      CallPython([&] { values.copy_((*part->initial)(path).cast<at::Tensor>()); });
    };
  }
  return factories;
}

}  // namespace ringzero::python
