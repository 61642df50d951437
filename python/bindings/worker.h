// Worker: one process' worker of a training run whose loop is Python's.
//
//   const auto identity = FindIdentity({}, CurrentEnvironment());
//   Config config = …;
//   Worker worker(config, identity, layers, length);   // joins, plans, connects, creates
//   for (lap = worker.NextLap(); …) { worker.Forward(x); …; worker.EndMicroBatch(loss); }
//   worker.Close(absl::OkStatus());
//
// Used by one thread, without the GIL; Abort, status and TakeReports by any. Errors are thrown as
// RingError.
#ifndef RINGZERO_PYTHON_BINDINGS_WORKER_H_
#define RINGZERO_PYTHON_BINDINGS_WORKER_H_

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "p2p/rendezvous/identity.h"
#include "p2p/rendezvous/join_job.h"
#include "zero/config/config.h"

namespace ringzero::python {

// What is known of a run's length before it begins.
struct RunLength {
  int iterations = 1;
  int64_t epoch_samples = 0;  // as in PlanRequest
  EvaluationPlan evaluation;
};

// Of an iteration (or, with true, an evaluation): its number, and its sums of metrics.
using Report = std::tuple<bool, int, std::vector<double>>;

class Worker {
 public:
  // `config`: read with ModelFrom::kProgram, its number of workers that of the job. No identity: a
  // job of this process alone.
  Worker(Config config, const std::optional<Identity>& identity, std::vector<LayerFactory> layers,
         const RunLength& length);
  ~Worker();  // Close, if it is not closed

  int self() const { return self_; }
  // Whether worker 0 knows the norm over all stages while the run goes on.
  bool has_norm() const { return has_norm_; }

  LapTask NextLap();
  TensorList Forward(TensorList inputs);
  // `metrics`: two numbers, which are summed over the micro-batches and reported at worker 0.
  void EndMicroBatch(const std::vector<double>& metrics);
  void SkipMicroBatch(const std::vector<double>& metrics);
  void Collect(const Visitor& visit);
  // Ends the run well. With an error: ends the run at all workers with `failure`, in the words of
  // this worker. Returns what went wrong elsewhere, or OK. Again: nothing.
  absl::Status Close(const absl::Status& failure);

  std::vector<Report> TakeReports();
  double GradientNorm(int iteration);
  double Rate(int64_t update) const;
  // What has ended the run here, if anything has.
  absl::Status status();
  // What waits ends with `why`. Nothing after Close.
  void Abort(const absl::Status& why);

 private:
  absl::StatusOr<PlannedRun> Plan(const RunLength& length) const;
  RingModel& ring();

  Config config_;
  const std::vector<LayerFactory> layers_;
  std::optional<OutsideJob> job_;
  int self_ = 0;
  bool has_norm_ = false;
  std::unique_ptr<OpenWorker> worker_;
  std::unique_ptr<RingModel> ring_;
  Mutex mutex_;
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
  Engine* running_ ABSL_GUARDED_BY(mutex_) = nullptr;  // ring_'s, for other threads
};

}  // namespace ringzero::python

#endif  // RINGZERO_PYTHON_BINDINGS_WORKER_H_
