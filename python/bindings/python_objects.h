// Python objects and exceptions in C++: held and let go by any thread.
//
//   const PyHandle module = Keep(object);           // the last copy may go without the GIL
//   CallPython([&] { (*module)("x"); });            // takes the GIL; a Python exception comes out as
//                                                   // PythonError, whose text is one line
#ifndef RINGZERO_PYTHON_BINDINGS_PYTHON_OBJECTS_H_
#define RINGZERO_PYTHON_BINDINGS_PYTHON_OBJECTS_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/ring_model.h"

namespace ringzero::python {

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

// A Python exception on its way through C++. The binding's translator raises the very exception
// again, with its traceback.
class PythonError : public std::runtime_error {
 public:
  // With the GIL.
  explicit PythonError(py::error_already_set& error)
      : std::runtime_error(Text(error)), error_(Keep(error.value())) {
    if (error.trace()) PyException_SetTraceback(error.value().ptr(), error.trace().ptr());
  }
  const PyHandle& error() const { return error_; }

 private:
  // "ValueError: bad shape", the first line of it.
  static std::string Text(py::error_already_set& error) {
    const std::string type = py::str(error.type().attr("__name__"));
    const std::string text = type + ": " + std::string(py::str(error.value()));
    return text.substr(0, text.find('\n'));
  }
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
    const auto code = error.value().attr("ringzero_code").cast<int>();
    throw RingError(
        absl::Status(static_cast<absl::StatusCode>(code), std::string(py::str(error.value()))));
  }
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

}  // namespace ringzero::python

#endif  // RINGZERO_PYTHON_BINDINGS_PYTHON_OBJECTS_H_
