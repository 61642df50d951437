// From configuration and layers to a running worker, and to its end.
#include "python/bindings/worker.h"

#include <cmath>
#include <utility>

#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/failure.h"
#include "python/bindings/python_objects.h"
#include "sharding/plan.h"
#include "zero/rate_curve.h"

namespace ringzero::python {

constexpr int kMetrics = 2;

absl::StatusOr<PlannedRun> Worker::Plan(const RunLength& length) const {
  PlannedRun run{.layers = layers_};
  RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, {}));
  PlanRequest request = PlanRequestOf(config_);
  request.iterations = length.iterations;
  request.epoch_samples = length.epoch_samples;
  request.evaluation = length.evaluation;
  request.optimizer = config_.optimizer;
  RZ_ASSIGN_OR_RETURN(run.planned, PlanModel(run.model, request));
  return run;
}

Worker::Worker(Config config, const std::optional<Identity>& identity,
               std::vector<LayerFactory> layers, const RunLength& length)
    : config_(std::move(config)), layers_(std::move(layers)) {
  if (config_.curve_ends_with_run) EndCurve(length.iterations, config_.optimizer.curve);
  const CyclicConfig& cyclic = config_.cyclic;
  RunWorkersOptions options{
      .launch = {.workers = cyclic.workers, .peer_timeout = cyclic.peer_timeout},
      .agreement = {{"configuration", config_.keys.SharedLines()}},
      .threads = cyclic.threads,
      .metrics_count = kMetrics,
      .checksums = cyclic.checksums};
  options.transport = ChoiceOf(cyclic.transport);
  job_ = ValueOrThrow(
      JoinOutsideJob(identity, {.peer_timeout = cyclic.peer_timeout, .open_tcp = OpenTcpStore}));
  options.seat = job_.has_value() ? job_->seat : JobSeat{.rendezvous = MakeLocalRendezvous()};
  worker_ = ValueOrThrow(OpenWorker::Open(std::move(options), [&] { return Plan(length); }));
  WorkerSeat& seat = worker_->seat();
  self_ = seat.self.value;
  has_norm_ = seat.run.planned.plan.has_norm() || cyclic.workers == 1;
  RingModelOptions ring{.layers = layers_,
                        .description = seat.run.model,
                        .planned = seat.run.planned,
                        .products_first = cyclic.products_first};
  ring.engine.self = seat.self;
  ring.engine.transport = std::move(seat.transport);
  ring.engine.optimizer = config_.optimizer;
  ring.engine.seed = config_.seed;
  ring.engine.metrics_count = kMetrics;
  ring.engine.gradient_norms = true;
  ring.engine.wait_timeout = cyclic.wait_timeout;
  if (!cyclic.flight_recorder) ring.engine.recorder.capacity = 0;
  ring.engine.on_report = [this](Iteration t, LapTask::Kind kind,
                                 const std::vector<double>& metrics) {
    const MutexLock lock(mutex_);
    reports_.emplace_back(kind == LapTask::Kind::kEvaluate, t.value, metrics);
  };
  absl::StatusOr<std::unique_ptr<RingModel>> made = RingModel::Create(std::move(ring));
  if (!made.ok()) {
    const absl::Status told = Close(made.status());
    throw RingError(told.ok() ? made.status() : told);
  }
  ring_ = *std::move(made);
  const MutexLock lock(mutex_);
  running_ = &ring_->engine();
}

Worker::~Worker() { Close(absl::CancelledError("the engine was not closed")).IgnoreError(); }

RingModel& Worker::ring() {
  if (ring_ == nullptr) throw RingError(absl::FailedPreconditionError("the engine is closed"));
  return *ring_;
}

LapTask Worker::NextLap() { return ValueOrThrow(ring().NextLap()); }
TensorList Worker::Forward(TensorList inputs) { return ring().Forward(std::move(inputs)); }
void Worker::EndMicroBatch(const std::vector<double>& metrics) {
  ThrowIfError(ring().EndMicroBatch(metrics));
}
void Worker::SkipMicroBatch(const std::vector<double>& metrics) {
  ThrowIfError(ring().SkipMicroBatch(metrics));
}
void Worker::Collect(const Visitor& visit) { ThrowIfError(ring().Collect(visit)); }

absl::Status Worker::Close(const absl::Status& failure) {
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
  const std::unique_ptr<OpenWorker> worker = std::move(worker_);
  if (mine.ok()) return worker->Close(std::string()).status();
  const absl::Status cause = worker->Close(mine).status();
  return job_.has_value() ? SaidBy(job_->seat.self, cause) : cause;
}

std::vector<Report> Worker::TakeReports() {
  const MutexLock lock(mutex_);
  return std::exchange(reports_, {});
}

double Worker::GradientNorm(int iteration) {
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
