// Twins of Python modules. RingModel's destructor puts modes back, which runs Python's code: an
// exception there (Ctrl-C) is dropped.
#include "python/bindings/python_layers.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "absl/strings/str_split.h"

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

std::vector<BatchNormPart> NormsOf(const Parts& parts) {
  std::vector<BatchNormPart> norms;
  for (const Parts::Norm& norm : parts.norms) {
    norms.push_back({.prefix = norm.prefix,
                     .mean = norm.mean,
                     .variance = norm.variance,
                     .count = norm.count,
                     .momentum = norm.momentum,
                     .set_momentum = [module = norm.module](double momentum) {
                       // Without running Python's code: destructors call this, too.
                       const py::gil_scoped_acquire gil;
                       module->attr("__dict__")["momentum"] = momentum;
                     }});
  }
  return norms;
}

void RegisterAll(const Parts& parts, Module& twin) {
  for (const auto& [path, tensor] : parts.parameters) RegisterAt(twin, path, tensor, false);
  for (const auto& [path, tensor] : parts.buffers) RegisterAt(twin, path, tensor, true);
}

class PythonLayer final : public Layer {
 public:
  explicit PythonLayer(Parts parts) : parts_(std::move(parts)) {
    RegisterAll(parts_, *this);
    SetTraining(true);  // who counted its cost may have left it in eval mode
  }
  TensorList forward(TensorList inputs) override {
    return CallPython([&] { return (*parts_.forward)(inputs).cast<TensorList>(); });
  }
  std::vector<BatchNormPart> batch_norms() override { return NormsOf(parts_); }
  bool draws() override { return true; }  // what Python calls cannot be known
  void train(bool on = true) override {
    Module::train(on);
    SetTraining(on);
  }

 private:
  void SetTraining(bool on) {
    CallPython([&] { (*parts_.set_training)(on); });
  }
  const Parts parts_;
};

// A whole ready module: its mode, and its forward.
class Whole final : public Module {
 public:
  Whole(PyHandle run, PyHandle set_training)
      : run_(std::move(run)), set_training_(std::move(set_training)) {
    train(true);
  }
  void train(bool on = true) override {
    Module::train(on);
    CallPython([&] { (*set_training_)(on); });
  }
  TensorList Run(StageMarks& marks, const TensorList& inputs) const {
    return CallPython([&] {
      return (*run_)(py::cast(&marks, py::return_value_policy::reference), inputs)
          .cast<TensorList>();
    });
  }

 private:
  const PyHandle run_, set_training_;
};

class PythonPart final : public MarkedLayer {
 public:
  PythonPart(std::shared_ptr<Module> whole, Parts parts)
      : MarkedLayer(std::move(whole),
                    [](Module& module, StageMarks& marks, TensorList inputs) {
                      return static_cast<Whole&>(module).Run(marks, inputs);
                    }),
        parts_(std::move(parts)) {
    RegisterAll(parts_, *this);
  }
  std::vector<BatchNormPart> batch_norms() override { return NormsOf(parts_); }
  bool draws() override { return true; }

 private:
  const Parts parts_;
};

// Builds the twin of one layer. Used with BuildLayer's lock.
class TwinMaker {
 public:
  TwinMaker(PyHandle build, PyHandle run, std::shared_ptr<std::weak_ptr<Module>> whole)
      : build_(std::move(build)), run_(std::move(run)), whole_(std::move(whole)) {}

  std::shared_ptr<Layer> operator()() {
    Parts parts = CallPython([this] { return (*build_)().cast<Parts>(); });
    const void* module = parts.module->ptr();
    if (std::shared_ptr<Layer> living = twin_.lock(); living != nullptr && module == of_) {
      return living;
    }
    std::shared_ptr<Layer> twin;
    if (run_ == nullptr) {
      twin = std::make_shared<PythonLayer>(std::move(parts));
    } else {
      std::shared_ptr<Module> whole = whole_->lock();
      if (whole == nullptr) {
        whole = std::make_shared<Whole>(run_, parts.set_training);
        *whole_ = whole;
      }
      twin = std::make_shared<PythonPart>(std::move(whole), std::move(parts));
    }
    twin_ = twin;
    of_ = module;
    return twin;
  }

 private:
  const PyHandle build_, run_;
  const std::shared_ptr<std::weak_ptr<Module>> whole_;  // shared by the parts of a ready module
  std::weak_ptr<Layer> twin_;
  const void* of_ = nullptr;
};

}  // namespace

std::vector<LayerFactory> FactoriesOf(const std::vector<LayerOfPython>& layers,
                                      const PyHandle& run) {
  const auto whole = std::make_shared<std::weak_ptr<Module>>();
  std::vector<LayerFactory> factories;
  for (const LayerOfPython& layer : layers) {
    const auto maker = std::make_shared<TwinMaker>(layer.build, run, whole);
    LayerFactory& factory = factories.emplace_back();
    factory.name = layer.name;
    factory.build = [maker] { return (*maker)(); };
    factory.cost = layer.cost;
    for (const auto& [parameter, target] : layer.tied) factory.tied.push_back({parameter, target});
    factory.ready = layer.ready;
  }
  return factories;
}

}  // namespace ringzero::python
