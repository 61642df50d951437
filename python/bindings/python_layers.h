// Layers of Python: C++ modules whose parameters and buffers are the very tensors of Python modules.
//
//   std::vector<LayerFactory> layers = FactoriesOf({{.name = "h.0", .build = build, …}, …}, run);
//
// What RingModel does to the twin (storages, gradients, modes) happens to the Python module. There
// is one twin of a Python module at a time: a second one would take BatchNorm's buffers from the
// first.
#ifndef RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_
#define RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integrations/torch/layer.h"
#include "integrations/torch/stage_marks.h"
#include "python/bindings/python_objects.h"

namespace ringzero::python {

// What a Python layer, or a part of a ready module, tells of itself.
struct Parts {
  using Named = std::vector<std::pair<std::string, at::Tensor>>;  // by path: "attn.weight"

  struct Norm {
    std::string prefix;  // "bn1." or ""
    at::Tensor mean, variance, count;
    std::optional<double> momentum;
    PyHandle module;  // its attribute `momentum` is set
  };

  PyHandle module;  // whose tensors these are: the twin's identity
  Named parameters;
  Named buffers;
  std::vector<Norm> norms;
  PyHandle set_training;  // set_training(on: bool) of the module, with the modes it was given with
  PyHandle forward;       // list of tensors -> list of tensors; None: a part of a ready module
};

// One layer as Python hands it over.
struct LayerOfPython {
  std::string name;
  PyHandle build;                                         // build() -> Parts
  LayerCost cost;                                         // of one sample
  std::vector<std::pair<std::string, std::string>> tied;  // parameter here, its full name elsewhere
  bool ready = false;                                     // LayerFactory::ready
};

// `run`: run(marks, tensors) -> tensors, the forward of a ready module whose parts the layers are;
// empty: each layer has a forward of its own.
std::vector<LayerFactory> FactoriesOf(const std::vector<LayerOfPython>& layers,
                                      const PyHandle& run);

}  // namespace ringzero::python

#endif  // RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_
