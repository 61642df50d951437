// Parts of a Python model as layers: C++ modules whose parameters and buffers are the very tensors
// of the Python module.
//
//   std::vector<LayerFactory> layers = FactoriesOf({.run = run, …, .parts = {{.name = "h.0", …}}});
//
// What RingModel does to the twin (storages, gradients, modes) happens to the Python module. There
// is one twin of a part at a time: a second one would take BatchNorm's buffers from the first.
#ifndef RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_
#define RINGZERO_PYTHON_BINDINGS_PYTHON_LAYERS_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero::python {

// Python objects and exceptions are held and let go by any thread:
//
//   const PyHandle module = Keep(object);   // the last copy may go without the GIL
//   CallPython([&] { (*module)("x"); });    // takes the GIL; a Python exception comes out as
//                                           // PythonError, whose text is one line
namespace py = pybind11;

using PyHandle = std::shared_ptr<py::object>;

// Thread-safe. After the interpreter's end the object is left alone.
inline PyHandle Keep(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (Py_IsInitialized() == 0) {
              held->release();
              delete held;
              return;
            }
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

// What a Python exception says to other workers: ours their own words, others their first line.
inline absl::Status StatusOf(const py::object& error) {
  const std::string text = py::str(error);
  if (py::hasattr(error, "ringzero_code")) {
    return {static_cast<absl::StatusCode>(error.attr("ringzero_code").cast<int>()), text};
  }
  const std::string line = py::str("{}: {}").format(py::type::of(error).attr("__name__"), error);
  const bool interrupt = PyErr_GivenExceptionMatches(error.ptr(), PyExc_KeyboardInterrupt) != 0;
  return {interrupt ? absl::StatusCode::kCancelled : absl::StatusCode::kUnknown,
          line.substr(0, line.find('\n'))};
}

// A Python exception on its way through C++. The binding's translator raises the very exception
// again, with its traceback.
class PythonError : public std::runtime_error {
 public:
  // With the GIL.
  explicit PythonError(py::error_already_set& error)
      : std::runtime_error(std::string(StatusOf(error.value()).message())),
        error_(Keep(error.value())) {
    if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
  }
  const PyHandle& error() const { return error_; }

 private:
  PyHandle error_;
};

// `body()` with the GIL. An exception of ours that comes back through Python is RingError again.
template <typename Body>
auto CallPython(const Body& body) -> decltype(body()) {
  const py::gil_scoped_acquire gil;
  try {
    return body();
  } catch (py::error_already_set& error) {
    if (!py::hasattr(error.value(), "ringzero_code")) throw PythonError(error);
    throw RingError(StatusOf(error.value()));
  }
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

// One part, as Python hands it over.
struct PythonPart {
  using Named = std::vector<std::pair<std::string, at::Tensor>>;  // by path: "attn.weight"

  std::string name;
  Named parameters;
  Named buffers;
  std::vector<BatchNormPart> norms;
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
