// Parts of a Python model as layers: C++ modules whose parameters and buffers are the very tensors
// of the Python module.
//
//   std::vector<LayerFactory> layers = FactoriesOf({.run = run, …, .parts = {{.name = "h.0", …}}});
//
// What RingModel does to the twin (storages, gradients, modes) happens to the Python module. There
// is one twin of a part at a time: a second one would take BatchNorm's buffers from the first.
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

// One part, as Python hands it over.
struct PythonPart {
  using Named = std::vector<std::pair<std::string, at::Tensor>>;  // by path: "attn.weight"

  struct Norm {
    std::string prefix;  // "bn1." or ""
    at::Tensor mean, variance, count;
    std::optional<double> momentum;
    PyHandle module;  // its attribute `momentum` is set
  };

  std::string name;
  Named parameters;
  Named buffers;
  std::vector<Norm> norms;
  LayerCost cost;                                         // of one sample
  std::vector<std::pair<std::string, std::string>> tied;  // parameter here, its full name elsewhere
  // initial(path) -> tensor: a parameter's first values, drawn from torch's default generator.
  // Null: what the module holds.
  PyHandle initial;
};

struct PythonModel {
  PyHandle run;           // run(marks, tensors) -> tensors: the whole forward
  PyHandle set_training;  // set_training(on: bool), with the modes that the module was given with
  std::vector<PythonPart> parts;
};

// Initial values are keyed by `seed`.
std::vector<LayerFactory> FactoriesOf(const PythonModel& model, uint64_t seed);

}  // namespace ringzero::python

#endif  // RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_
