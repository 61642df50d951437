// From configuration and layers to a running worker, and to its end.
#include "python/bindings/worker.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <iostream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/status.h"
#include "base/system_names.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/measurements.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/failure.h"
#include "p2p/job/limits.h"
#include "sharding/plan.h"
#include "sharding/study/cost_profile.h"
#include "zero/config/tier.h"
#include "zero/optimizer/rate_curve.h"

namespace ringzero::python {

constexpr int kMetrics = 2;
constexpr unsigned char kEnd = 0;  // no number of a signal

absl::StatusOr<Config> ConfigOf(std::string text, const std::string& file) {
  RZ_ASSIGN_OR_RETURN(const auto identity, FindIdentity({}, CurrentEnvironment()));
  const int workers = identity.has_value() ? identity->workers : 1;
  if (text.empty()) {
    RZ_ASSIGN_OR_RETURN(text, ReadConfigFile(file));
  }
  RZ_ASSIGN_OR_RETURN(
      Config config,
      ParseConfig(text, {.file = file, .environment = {absl::StrCat("cyclic.workers=", workers)}},
                  ModelFrom::kProgram));
  for (const auto& [key, given] : {std::pair("tensorboard", config.tensorboard.has_value()),
                                   std::pair("csv_monitor", config.csv_monitor.has_value())}) {
    if (given) return config.Error(key, "not in Python: write engine.losses where you want them");
  }
  if (!config.cyclic.checkpoint.folder.empty()) {
    return config.Error("cyclic.checkpoint",
                        "not in Python yet: engine.state_dict() has the values");
  }
  if (config.cyclic.transport == TransportChoice::kLocal) {
    return config.Error("cyclic.transport",
                        "local is for threads of one process; a worker of Python is a process");
  }
  return config;
}

absl::StatusOr<RunLength> LengthOf(Config& config, std::optional<int> iterations,
                                   std::optional<int64_t> train_samples, int64_t test_samples) {
  if (iterations.has_value()) {
    if (*iterations < 1) return InvalidArgument("iterations=", *iterations, ": wanted at least 1");
    config.iterations = iterations;
    config.epochs = std::nullopt;
  }
  if (!config.iterations.has_value() && !(config.epochs.has_value() && train_samples.has_value())) {
    return InvalidArgument(
        "a run's length must be known before it begins: give iterations=, or in the "
        "configuration `iterations`, or `epochs` with training_data=");
  }
  if (test_samples == 0 && !config.evaluation.every.has_value()) config.evaluation.every = 0;
  // Without data: each epoch is one batch.
  RZ_ASSIGN_OR_RETURN(
      RunLength length,
      MeasureRun(config, train_samples.value_or(config.batch.train_batch), test_samples));
  if (config.curve_ends_with_run) EndCurve(length.iterations, config.optimizer.curve);
  return length;
}

// Tells Python where to write the numbers of signals. Returns where it wrote before; nothing, and
// changes nothing, in other threads than its main one. Runs no Python code.
static std::optional<int> SetWakeup(int fd) {
  const py::gil_scoped_acquire gil;
  try {
    const py::module_ signal = py::module_::import("_signal");
    return signal.attr("set_wakeup_fd")(fd, py::arg("warn_on_full_buffer") = false).cast<int>();
  } catch (const py::error_already_set&) {
    return std::nullopt;
  }
}

SignalPipe::SignalPipe(std::function<void()> on_interrupt) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw RingError(absl::InternalError("pipe: no file is left"));
  read_ = ends[0];
  write_ = ends[1];
  fcntl(write_, F_SETFL, O_NONBLOCK);  // Python wants it so
  before_ = SetWakeup(write_);
  const auto listen = [this, on_interrupt = std::move(on_interrupt)] {
    for (unsigned char signal = kEnd + 1; signal != kEnd;) {
      const ssize_t got = read(read_, &signal, 1);
      if (got < 0 && errno != EINTR) return;
      if (got == 1 && signal == SIGINT) on_interrupt();
    }
  };
  thread_ = std::make_unique<std::thread>(NamedThread("rz-signals", listen));
}

SignalPipe::~SignalPipe() {
  if (getpid() == process_) {
    Restore();
    // Closing would not end the thread: children of fork have the other end, too.
    while (write(write_, &kEnd, 1) < 0 && (errno == EAGAIN || errno == EINTR)) sched_yield();
    thread_->join();
    if (before_.has_value()) return;  // Python still writes there
    close(write_);
    close(read_);
  } else {
    static_cast<void>(thread_.release());  // a fork has no threads; its Python writes to the pipe
  }
}

void SignalPipe::Restore() {
  if (before_.has_value() && SetWakeup(*before_).has_value()) before_.reset();
}

namespace {

// Of the initial values of all parameters.
std::string InitialLine(const PythonModel& model) {
  Sha256 digest;
  for (const PythonPart& part : model.parts) {
    if (part.initial != nullptr) continue;  // keyed by the seed
    for (const auto& [path, tensor] : part.parameters) {
      const auto here = [&name = path](const auto& tie) { return tie.first == name; };
      if (std::any_of(part.tied.begin(), part.tied.end(), here)) continue;
      const at::Tensor dense = tensor.detach().contiguous();
      digest.Update({static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()});
    }
  }
  return absl::StrCat("sha256 of the model's initial values (seed torch alike everywhere) = ",
                      digest.FinishHex(), "\n");
}

}  // namespace

absl::StatusOr<PlannedRun> Worker::Plan(const RunLength& length, bool collects,
                                        const PlanFunction& plan_model) const {
  PlannedRun run{.layers = layers_};
  RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, {}));
  PlanRequest request = PlanRequestOf(config_, length);
  request.requests = request.exchange;
  request.collection = {.on_request = collects && request.exchange, .parameters_only = true};
  const auto hosts = job_.has_value() ? job_->seat.hosts : std::vector<std::string>();
  RZ_ASSIGN_OR_RETURN(request.hosts,
                      WorkersThatShare(config_.cyclic.transport, hosts, request.workers));
  if (request.question.has_value()) {
    request.question->links.hosts = CountByHost(hosts, request.workers);
    request.question->cores = CoresOfJob(hosts, request.workers) / config_.cyclic.threads;
  }
  RZ_ASSIGN_OR_RETURN(run.planned, plan_model(run.model, request));
  return run;
}

absl::Status Worker::JudgeDisk(const PlannedModel& planned) const {
  if (self_ > 0 || !planned.plan.uses_disk()) return absl::OkStatus();
  const CyclicConfig& cyclic = config_.cyclic;
  const auto hosts = job_.has_value() ? job_->seat.hosts : std::vector<std::string>();
  const std::vector<int64_t> moments = MomentBytes(config_.optimizer, planned.layouts);
  SimulationOptions speed = EstimateTicks(planned.plan, moments, MeasureSpeed());
  ShareCores(CoresOfJob(hosts, cyclic.workers) / cyclic.threads, speed);
  speed.links = LinkOf(cyclic);
  speed.links.hosts = CountByHost(hosts, cyclic.workers);
  RZ_ASSIGN_OR_RETURN(const TierVerdict tier, JudgeTier(config_, planned, speed));
  std::cerr << "ringzero: " << tier.text << std::flush;
  return CheckHidden(config_, tier);
}

Worker::Worker(Config config, const PythonModel& model, const RunLength& length, bool collects)
    : config_(std::move(config)),
      layers_(FactoriesOf(model, config_.seed)),
      signals_([this] { Abort(absl::CancelledError("interrupted by signal 2 (Interrupt)")); }) {
  const CyclicConfig& cyclic = config_.cyclic;
  RunWorkersOptions options{
      .launch = {.workers = cyclic.workers, .peer_timeout = cyclic.peer_timeout},
      .agreement = {{"configuration", config_.keys.SharedLines()}},
      .threads = cyclic.threads,
      .metrics_count = kMetrics,
      .checksums = cyclic.checksums};
  // Every worker begins with its own values there. In other stages of ZeRO the owner has them.
  if (config_.zero_stage == 0) options.agreement.push_back({"initial values", InitialLine(model)});
  options.transport = cyclic.transport;
  job_ =
      ValueOrThrow(JoinOutsideJob(ValueOrThrow(FindIdentity({}, CurrentEnvironment())),
                                  {.peer_timeout = cyclic.peer_timeout, .open_tcp = OpenTcpStore}));
  options.seat = job_.has_value() ? job_->seat : JobSeat{.rendezvous = MakeLocalRendezvous()};
  worker_ = ValueOrThrow(OpenWorker::Open(std::move(options), [&](const PlanFunction& plan_model) {
    return Plan(length, collects, plan_model);
  }));
  WorkerSeat& seat = worker_->seat();
  self_ = seat.self.value;
  const auto say = [this](const auto&... words) {
    if (self_ == 0) std::cerr << absl::StrCat("ringzero: ", words..., "\n") << std::flush;
  };
  for (const std::string& note : length.notes) say(note);
  const PlannedModel& planned = seat.run.planned;
  for (const std::string& warning : planned.warnings) say("warning: ", warning);
  if (!planned.rule_choice.empty()) say(planned.rule_choice);
  if (planned.plan.rule != Rule::kDp && !length.rule_choice.empty()) {
    say("rule ", ToString(planned.plan.rule), ": ", length.rule_choice);
  }
  has_norm_ = seat.run.planned.plan.has_norm() || cyclic.workers == 1;
  RingModelOptions ring{
      .layers = layers_, .planned = seat.run.planned, .products_first = cyclic.products_first};
  ring.engine.self = seat.self;
  ring.engine.transport = std::move(seat.transport);
  ring.engine.optimizer = config_.optimizer;
  ring.engine.seed = config_.seed;
  ring.engine.metrics_count = kMetrics;
  ring.engine.gradient_norms = true;
  ring.engine.wait_timeout = cyclic.wait_timeout;
  if (!cyclic.flight_recorder) ring.engine.recorder_events = 0;
  ring.engine.on_report = [this](Iteration t, LapTask::Kind kind,
                                 const std::vector<double>& metrics) { Hear(t, kind, metrics); };
  const auto begin = [&]() -> absl::Status {
    RZ_ASSIGN_OR_RETURN(OpenedTier tier, OpenTier(config_, planned, seat.self));
    ring.engine.tier = std::move(tier.options);
    for (const std::string& note : tier.notes) say(note);
    RZ_ASSIGN_OR_RETURN(ring_, RingModel::Create(std::move(ring)));
    return JudgeDisk(planned);  // the others hear of its errors through the ring
  };
  if (const absl::Status begun = begin(); !begun.ok()) {
    const absl::Status told = Close(begun);
    throw RingError(told.ok() ? begun : told);
  }
  const MutexLock lock(mutex_);
  running_ = &ring_->engine();
}

Worker::~Worker() {
  if (getpid() == signals_.process()) {
    Close(absl::CancelledError("the engine was not closed")).IgnoreError();
  } else {  // a fork: threads and connections are the parent's
    static_cast<void>(ring_.release());
    static_cast<void>(worker_.release());
    static_cast<void>(new std::optional<OutsideJob>(std::move(job_)));
  }
}

RingModel& Worker::ring() {
  if (ring_ == nullptr || getpid() != signals_.process()) {
    throw RingError(absl::FailedPreconditionError("the engine is closed, or in another process"));
  }
  return *ring_;
}

LapTask Worker::NextLap() {
  lap_ = ValueOrThrow(ring().NextLap());
  while (lap_.kind == LapTask::Kind::kTrain && lap_.missing()) {
    ThrowIfError(ring().SkipMicroBatch(std::vector<double>(kMetrics)));
    ++micro_steps_;
    lap_ = ValueOrThrow(ring().NextLap());
  }
  return lap_;
}

TensorList Worker::Forward(TensorList inputs) { return ring().Forward(std::move(inputs)); }

void Worker::EndMicroBatch(std::optional<double> loss, std::optional<int64_t> samples) {
  const auto weight =
      static_cast<double>(!loss.has_value() ? 0 : samples.value_or(lap_.samples.value_or(1)));
  const double sum = weight == 0 ? 0 : *loss * weight;
  ThrowIfError(ring().EndMicroBatch({sum, weight}));
  if (lap_.kind == LapTask::Kind::kTrain) ++micro_steps_;
}

void Worker::Collect(const Visitor& visit) {
  if (lap_.kind == LapTask::Kind::kCollect) ThrowIfError(ring().Collect(visit));
}

std::optional<int> Worker::Ask(Request request) {
  if (self_ > 0) return std::nullopt;
  return ValueOrThrow(ring().engine().Ask(request)).value;
}

int Worker::iterations() { return ring().engine().iterations(); }

absl::Status Worker::Close(const absl::Status& failure) {
  const absl::Cleanup restore = [this] { signals_.Restore(); };
  if (worker_ == nullptr) return absl::OkStatus();
  absl::Status mine = failure;
  if (ring_ != nullptr) {
    if (mine.ok()) {
      mine = ring_->Finish();
    } else {
      ring_->engine().Abort(failure);
    }
    {
      const MutexLock lock(mutex_);
      running_ = nullptr;
    }
    ring_ = nullptr;
  }
  const std::optional<OutsideJob> job = std::exchange(job_, std::nullopt);
  const std::unique_ptr<OpenWorker> worker = std::move(worker_);
  if (mine.ok()) return worker->Close(std::string()).status();
  const absl::Status cause = worker->Close(mine).status();
  return job.has_value() ? SaidBy(job->seat.self, cause) : cause;
}

void Worker::Hear(Iteration t, LapTask::Kind kind, const std::vector<double>& metrics) {
  const MutexLock lock(mutex_);
  const bool told = metrics[1] != 0;
  const double mean = told ? metrics[0] / metrics[1] : std::nan("");
  if (kind == LapTask::Kind::kEvaluate) {
    reports_.evaluations.emplace_back(t.value, mean);
  } else {
    reports_.losses.push_back(mean);
  }
  const bool stops = config_.cyclic.on_nonfinite == CyclicConfig::OnNonfinite::kStop;
  if (stops && told && !std::isfinite(mean) && not_finite_.ok()) {
    not_finite_ = absl::OutOfRangeError(absl::StrCat(
        "iteration ", t.value, ": the loss is not finite; cyclic.on_nonfinite is stop"));
  }
}

absl::StatusOr<Reports> Worker::TakeReports() {
  const MutexLock lock(mutex_);
  RZ_RETURN_IF_ERROR(not_finite_);
  return std::exchange(reports_, {});
}

std::optional<double> Worker::GradientNorm(int iteration) {
  if (!has_norm_ || self_ != 0 || iteration < 0) return std::nullopt;
  return std::sqrt(ring().engine().GradientSquares(Iteration(iteration)));
}
double Worker::Rate(int64_t update) const {
  return RateAt(config_.optimizer.curve, config_.optimizer.learning_rate, update).rate;
}

absl::Status Worker::status() {
  const MutexLock lock(mutex_);
  return running_ == nullptr ? absl::OkStatus() : running_->status();
}
void Worker::Abort(const absl::Status& why) {
  const MutexLock lock(mutex_);
  if (running_ != nullptr) running_->Abort(why);
}

}  // namespace ringzero::python
