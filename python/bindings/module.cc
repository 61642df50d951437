// The module ringzero._ringzero: what python/ringzero calls.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "integrations/data/dataset.h"
#include "python/bindings/python_layers.h"
#include "python/bindings/worker.h"

namespace ringzero::python {
namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

py::object ExceptionOf(const absl::Status& status) {
  return py::module_::import("ringzero.errors")
      .attr("of_status")(static_cast<int>(status.code()), std::string(status.message()));
}

void Translate(std::exception_ptr thrown) {
  const auto raise = [](const py::object& error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  };
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const PythonError& error) {
    raise(*error.error());
  } catch (const RingError& error) {
    raise(ExceptionOf(error.status()));
  }
}

// numel fp32 values as a tensor of their own; counts as an int64 scalar.
at::Tensor TensorOf(const NamedValues& values) {
  if (values.count >= 0) return at::scalar_tensor(values.count, at::kLong);
  return at::from_blob(const_cast<float*>(values.values.data()), values.shape, at::kFloat).clone();
}

// By LapTask::Kind.
constexpr const char* kKinds[] = {"train", "evaluate", "collect", "done"};
static_assert(static_cast<int>(LapTask::Kind::kDone) == 3);

// By the ring's names, in its order; nothing at other workers than 0.
std::vector<std::pair<std::string, at::Tensor>> Collected(Worker& worker) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  worker.Collect([&](const NamedValues& values) {
    if (values.kind == NamedValues::Kind::kParameter ||
        values.kind == NamedValues::Kind::kStatistic) {
      found.emplace_back(values.name, TensorOf(values));
    }
    return absl::OkStatus();
  });
  return found;
}

// Getters of Config have DeepSpeed's names: the engine has them, too.
void BindConfig(py::module_& m) {
  py::class_<Config>(m, "Config")
      .def(py::init([](const std::string& text, const std::string& file) {
        return ValueOrThrow(ConfigOf(text, file));
      }))
      .def("train_batch_size", [](const Config& c) { return c.batch.train_batch; })
      .def("train_micro_batch_size_per_gpu", [](const Config& c) { return c.batch.micro_batch; })
      .def("gradient_accumulation_steps", [](const Config& c) { return c.batch.laps; })
      .def("gradient_clipping", [](const Config& c) { return c.optimizer.max_norm; })
      .def("zero_optimization_stage", [](const Config& c) { return c.zero_stage; })
      .def_property_readonly("workers", [](const Config& c) { return c.cyclic.workers; });
  py::class_<RunLength>(m, "Length")
      .def(py::init([](Config& config, std::optional<int> iterations,
                       std::optional<int64_t> train_samples, int64_t test_samples) {
        return ValueOrThrow(LengthOf(config, iterations, train_samples, test_samples));
      }))
      .def_readonly("iterations", &RunLength::iterations)
      .def_readonly("iterations_per_epoch", &RunLength::iterations_per_epoch)
      .def_property_readonly("evaluation_laps",
                             [](const RunLength& length) { return length.evaluation.laps; });
  py::class_<SampleNumbers>(m, "SampleNumbers")
      .def(py::init([](const Config& config, const RunLength& length, int64_t train_samples) {
        return SampleNumbers(BatchesOf(config, length), train_samples);
      }))
      .def("train",
           [](SampleNumbers& numbers, int64_t iteration, int64_t micro_batch) {
             const std::span<const int64_t> found = numbers.Train(iteration, micro_batch);
             return std::vector<int64_t>(found.begin(), found.end());
           })
      .def("evaluate", &SampleNumbers::Evaluate);
}

// `norms`: pairs of a prefix and a module with running statistics.
std::vector<BatchNormPart> NormsOf(const py::list& norms) {
  const py::object batch_norm =
      py::module_::import("torch.nn.modules.batchnorm").attr("_BatchNorm");
  std::vector<BatchNormPart> found;
  for (const py::handle& each : norms) {
    const auto [prefix, norm] = each.cast<std::pair<std::string, py::object>>();
    const std::string type = py::str(py::type::of(norm).attr("__name__"));
    if (!py::isinstance(norm, batch_norm) || type == "SyncBatchNorm") {
      throw RingError(absl::InvalidArgumentError(
          absl::StrCat(prefix, ": a ", type,
                       " has running statistics; only BatchNorm's can travel with their stage")));
    }
    found.push_back({.prefix = prefix,
                     .mean = norm.attr("running_mean").cast<at::Tensor>(),
                     .variance = norm.attr("running_var").cast<at::Tensor>(),
                     .count = norm.attr("num_batches_tracked").cast<at::Tensor>(),
                     .momentum = norm.attr("momentum").cast<std::optional<double>>(),
                     .set_momentum = [module = Keep(norm)](double momentum) {
                       // Without running Python's code: destructors call this, too.
                       const py::gil_scoped_acquire gil;
                       module->attr("__dict__")["momentum"] = momentum;
                     }});
  }
  return found;
}

void BindLayers(py::module_& m) {
  py::class_<PythonPart>(m, "Part").def(
      py::init([](std::string name, PythonPart::Named parameters, PythonPart::Named buffers,
                  const py::list& norms, std::pair<int64_t, int64_t> cost,
                  std::vector<std::pair<std::string, std::string>> tied,
                  const py::object& initial) {
        return PythonPart{.name = std::move(name),
                          .parameters = std::move(parameters),
                          .buffers = std::move(buffers),
                          .norms = NormsOf(norms),
                          .cost = {.forward = cost.first, .backward = cost.second},
                          .tied = std::move(tied),
                          .initial = initial.is_none() ? nullptr : Keep(initial)};
      }),
      py::arg("name"), py::arg("parameters"), py::arg("buffers"), py::arg("norms"), py::arg("cost"),
      py::arg("tied"), py::arg("initial"));
  py::class_<StageMarks>(m, "Marks")
      .def("enter", &StageMarks::Enter, NoGil())
      .def("leave", &StageMarks::Leave, NoGil());
  py::class_<CountingMarks, StageMarks>(m, "CountingMarks")
      .def(py::init<size_t>())
      .def("readers_of", &CountingMarks::ReadersOf)
      .def_property_readonly("costs", [](const CountingMarks& marks) {
        std::vector<std::pair<int64_t, int64_t>> costs;
        for (const LayerCost& each : marks.costs()) costs.emplace_back(each.forward, each.backward);
        return costs;
      });
}

void BindWorker(py::module_& m) {
  py::class_<LapTask>(m, "Lap")
      .def_property_readonly("kind",
                             [](const LapTask& lap) { return kKinds[static_cast<int>(lap.kind)]; })
      .def_property_readonly("iteration", [](const LapTask& lap) { return lap.iteration.value; })
      .def_readonly("micro_batch", &LapTask::micro_batch);
  py::class_<Worker>(m, "Worker", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const Config& config, std::vector<PythonPart> parts, py::object run,
                       py::object set_training, const RunLength& length, bool collects) {
        const PythonModel model{.run = Keep(std::move(run)),
                                .set_training = Keep(std::move(set_training)),
                                .parts = std::move(parts)};
        const py::gil_scoped_release released;
        return std::make_unique<Worker>(config, model, length, collects);
      }))
      .def_property_readonly("self", &Worker::self)
      .def("next_lap", &Worker::NextLap, NoGil())
      .def("forward", &Worker::Forward, NoGil())
      .def("end_micro_batch", &Worker::EndMicroBatch, NoGil())
      .def_property_readonly("micro_steps", &Worker::micro_steps)
      .def("collect", &Collected, NoGil())
      .def(
          "end", [](Worker& worker) { return worker.Ask(Request::kEnd); }, NoGil())
      .def(
          "evaluate", [](Worker& worker) { return worker.Ask(Request::kEvaluation); }, NoGil())
      .def(
          "show", [](Worker& worker) { return worker.Ask(Request::kCollection); }, NoGil())
      .def("iterations", &Worker::iterations, NoGil())
      .def("close",
           [](Worker& worker, const py::object& error) {
             const absl::Status failure = error.is_none() ? absl::OkStatus() : StatusOf(error);
             const py::gil_scoped_release released;
             ThrowIfError(worker.Close(failure));
           })
      .def("take_reports",
           [](Worker& worker, py::list& losses, py::list& evaluations) {
             const Reports found = ValueOrThrow(worker.TakeReports());
             for (const double loss : found.losses) losses.append(loss);
             for (const auto& evaluation : found.evaluations) evaluations.append(evaluation);
           })
      .def("gradient_norm", &Worker::GradientNorm, NoGil())
      .def("rate", &Worker::Rate)
      .def_property_readonly("error", [](Worker& worker) -> py::object {
        const absl::Status status = worker.status();
        return status.ok() ? py::none() : ExceptionOf(status);
      });
}

PYBIND11_MODULE(_ringzero, m) {
  py::register_exception_translator(&Translate);
  BindConfig(m);
  BindLayers(m);
  BindWorker(m);
}

}  // namespace
}  // namespace ringzero::python
