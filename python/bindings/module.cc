// The module ringzero._ringzero: what python/ringzero calls.
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "absl/status/status.h"
#include "integrations/torch/describe_model.h"
#include "python/bindings/python_layers.h"
#include "python/bindings/python_objects.h"
#include "python/bindings/worker.h"

namespace ringzero::python {
namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

void Translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const PythonError& error) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.error()->ptr())),
                    error.error()->ptr());
  } catch (const RingError& error) {
    const py::object make = py::module_::import("ringzero.errors").attr("of_status");
    const py::object made =
        make(static_cast<int>(error.status().code()), std::string(error.status().message()));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

absl::Status StatusOf(int code, const std::string& message) {
  return {static_cast<absl::StatusCode>(code), message};
}

// numel fp32 values as a tensor of their own; counts as an int64 scalar.
at::Tensor TensorOf(const NamedValues& values) {
  if (values.count >= 0) return at::scalar_tensor(values.count, at::kLong);
  return at::from_blob(const_cast<float*>(values.values.data()), values.shape, at::kFloat).clone();
}

const char* KindOf(NamedValues::Kind kind) {
  switch (kind) {
    case NamedValues::Kind::kParameter: return "parameter";
    case NamedValues::Kind::kStatistic: return "statistic";
    case NamedValues::Kind::kGradient: return "gradient";
    case NamedValues::Kind::kState: return "state";
  }
  return "";
}

const char* KindOf(LapTask::Kind kind) {
  switch (kind) {
    case LapTask::Kind::kTrain: return "train";
    case LapTask::Kind::kEvaluate: return "evaluate";
    case LapTask::Kind::kCollect: return "collect";
    case LapTask::Kind::kDone: return "done";
  }
  return "";
}

void CollectInto(Worker& worker, const PyHandle& visit) {
  const py::gil_scoped_release released;
  worker.Collect([&](const NamedValues& values) {
    CallPython([&] { (*visit)(KindOf(values.kind), values.name, values.state, TensorOf(values)); });
    return absl::OkStatus();
  });
}

void BindConfig(py::module_& m) {
  py::class_<Config>(m, "Config")
      .def(py::init([](const std::string& text, const std::string& file,
                       const std::vector<std::string>& environment) {
             return ValueOrThrow(ParseConfig(text, {.file = file, .environment = environment},
                                             ModelFrom::kProgram));
           }),
           py::arg("text"), py::arg("file"), py::arg("environment"))
      .def_property_readonly("workers", [](const Config& c) { return c.cyclic.workers; })
      .def_property_readonly("micro_batch", [](const Config& c) { return c.batch.micro_batch; })
      .def_property_readonly("laps", [](const Config& c) { return c.batch.laps; })
      .def_property_readonly("train_batch", [](const Config& c) { return c.batch.train_batch; })
      .def_readonly("iterations", &Config::iterations)
      .def_readonly("epochs", &Config::epochs)
      .def_readonly("seed", &Config::seed)
      .def_readonly("zero_stage", &Config::zero_stage)
      .def_property_readonly("evaluate_every", [](const Config& c) { return c.evaluation.every; })
      .def_property_readonly("evaluation_batch",
                             [](const Config& c) { return c.evaluation.batch_size; })
      .def_property_readonly("drop_last", [](const Config& c) { return c.data.drop_last; })
      .def_property_readonly("clipping", [](const Config& c) { return c.optimizer.max_norm; });
}

void BindLayers(py::module_& m) {
  py::class_<Parts>(m, "Parts")
      .def(py::init([](py::object module, Parts::Named parameters, Parts::Named buffers,
                       const py::list& norms, py::object set_training, py::object forward) {
             Parts parts{.module = Keep(std::move(module)),
                         .parameters = std::move(parameters),
                         .buffers = std::move(buffers),
                         .set_training = Keep(std::move(set_training)),
                         .forward = Keep(std::move(forward))};
             for (const py::handle& each : norms) {
               const auto [prefix, norm] = each.cast<std::pair<std::string, py::object>>();
               parts.norms.push_back(
                   {.prefix = prefix,
                    .mean = norm.attr("running_mean").cast<at::Tensor>(),
                    .variance = norm.attr("running_var").cast<at::Tensor>(),
                    .count = norm.attr("num_batches_tracked").cast<at::Tensor>(),
                    .momentum = norm.attr("momentum").cast<std::optional<double>>(),
                    .module = Keep(norm)});
             }
             return parts;
           }),
           py::arg("module"), py::arg("parameters"), py::arg("buffers"), py::arg("norms"),
           py::arg("set_training"), py::arg("forward"));
  py::class_<LayerOfPython>(m, "Layer")
      .def(py::init([](std::string name, py::object build, std::pair<int64_t, int64_t> cost,
                       std::vector<std::pair<std::string, std::string>> tied, bool ready) {
             return LayerOfPython{.name = std::move(name),
                                  .build = Keep(std::move(build)),
                                  .cost = {.forward = cost.first, .backward = cost.second},
                                  .tied = std::move(tied),
                                  .ready = ready};
           }),
           py::arg("name"), py::arg("build"), py::arg("cost"), py::arg("tied"), py::arg("ready"));
  py::class_<StageMarks>(m, "Marks")
      .def("enter", &StageMarks::Enter, NoGil())
      .def("leave", &StageMarks::Leave, NoGil());
  py::class_<CostMeter, std::unique_ptr<CostMeter>>(m, "CostMeter")
      .def(py::init<const TensorList&>(), py::arg("inputs"))
      .def_property_readonly("cost", [](const CostMeter& meter) {
        return std::pair(meter.cost().forward, meter.cost().backward);
      });
}

void BindWorker(py::module_& m) {
  py::class_<Identity>(m, "Identity").def_readonly("workers", &Identity::workers);
  m.def("find_identity", [] { return ValueOrThrow(FindIdentity({}, CurrentEnvironment())); });
  py::class_<LapTask>(m, "Lap")
      .def_property_readonly("kind", [](const LapTask& lap) { return KindOf(lap.kind); })
      .def_readonly("micro_batch", &LapTask::micro_batch)
      .def_readonly("samples", &LapTask::samples)
      .def_property_readonly("missing", &LapTask::missing);
  py::class_<Worker>(m, "Worker", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const Config& config, const std::optional<Identity>& identity,
                       const std::vector<LayerOfPython>& layers, const py::object& run,
                       int iterations, int64_t epoch_samples, int evaluate_every,
                       int evaluation_laps) {
             const RunLength length{
                 .iterations = iterations,
                 .epoch_samples = epoch_samples,
                 .evaluation = {.every = evaluate_every, .laps = evaluation_laps}};
             const PyHandle whole = run.is_none() ? nullptr : Keep(run);
             const py::gil_scoped_release released;
             return std::make_unique<Worker>(config, identity, FactoriesOf(layers, whole), length);
           }),
           py::arg("config"), py::arg("identity"), py::arg("layers"), py::arg("run"),
           py::arg("iterations"), py::arg("epoch_samples"), py::arg("evaluate_every"),
           py::arg("evaluation_laps"))
      .def_property_readonly("self", &Worker::self)
      .def_property_readonly("has_norm", &Worker::has_norm)
      .def("next_lap", &Worker::NextLap, NoGil())
      .def("forward", &Worker::Forward, NoGil())
      .def("end_micro_batch", &Worker::EndMicroBatch, NoGil())
      .def("skip_micro_batch", &Worker::SkipMicroBatch, NoGil())
      .def("collect",
           [](Worker& worker, py::object visit) { CollectInto(worker, Keep(std::move(visit))); })
      .def("close",
           [](Worker& worker, int code, const std::string& message) {
             const py::gil_scoped_release released;
             ThrowIfError(worker.Close(StatusOf(code, message)));
           })
      .def("abort",
           [](Worker& worker, int code, const std::string& message) {
             const py::gil_scoped_release released;
             worker.Abort(StatusOf(code, message));
           })
      .def("take_reports", &Worker::TakeReports)
      .def("gradient_norm", &Worker::GradientNorm, NoGil())
      .def("rate", &Worker::Rate)
      .def("status", [](Worker& worker) {
        const absl::Status status = worker.status();
        return std::pair(static_cast<int>(status.code()), std::string(status.message()));
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
