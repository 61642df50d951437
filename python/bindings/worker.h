// Worker: one process' worker of a training run whose loop is Python's.
//
//   Worker worker(config, model, length);   // joins, plans, connects, creates
//   for (lap = worker.NextLap(); …) { worker.Forward(x); …; worker.EndMicroBatch(loss); }
//   worker.Close(absl::OkStatus());
//
// Used by one thread, without the GIL; Abort, status and TakeReports by any. Errors are thrown as
// RingError.
#ifndef RINGZERO_PYTHON_BINDINGS_WORKER_H_
#define RINGZERO_PYTHON_BINDINGS_WORKER_H_

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "p2p/job/join_job.h"
#include "python/bindings/python_layers.h"
#include "zero/config/config.h"

namespace ringzero::python {

// The configuration of a program that brings model and data: `text`, or what is in the file, if
// that is empty. InvalidArgument names the key: also one of what such a run does not do.
absl::StatusOr<Config> ConfigOf(std::string text, const std::string& file);

// `iterations`: in place of the configuration's. `train_samples`: nothing if they are not known.
absl::StatusOr<RunLength> LengthOf(Config& config, std::optional<int> iterations,
                                   std::optional<int64_t> train_samples, int64_t test_samples);

// What worker 0 has heard. NaN: no worker has told a loss.
struct Reports {
  std::vector<double> losses;                       // means, by iteration
  std::vector<std::pair<int, double>> evaluations;  // iteration and mean
};

// Hears of signals while Python's main thread, which handles them, waits in C++: made by that
// thread, Python writes their numbers to this pipe. Made by another one: hears nothing.
class SignalPipe {
 public:
  // `on_interrupt`: called at SIGINT, by a thread of its own.
  explicit SignalPipe(std::function<void()> on_interrupt);
  ~SignalPipe();
  void Restore();  // Python writes to where it wrote before
  pid_t process() const { return process_; }

 private:
  const pid_t process_ = getpid();
  int read_ = -1, write_ = -1;
  std::optional<int> before_;  // where Python wrote before
  std::unique_ptr<std::thread> thread_;
};

class Worker {
 public:
  // `config`: of ConfigOf. `collects`: collections may be asked for.
  Worker(Config config, const PythonModel& model, const RunLength& length, bool collects);
  ~Worker();  // Close, if it is not closed

  int self() const { return self_; }

  // Passes over micro-batches without samples.
  LapTask NextLap();
  TensorList Forward(TensorList inputs);
  // `loss`: the mean over the micro-batch's samples, if it is known. `samples`: in an evaluation,
  // how many of them count.
  void EndMicroBatch(std::optional<double> loss, std::optional<int64_t> samples);
  // Of training, of this worker, those without samples too.
  int64_t micro_steps() const { return micro_steps_; }
  void Collect(const Visitor& visit);  // if that is the task
  // At worker 0, as Engine::Ask; nothing at the others.
  std::optional<int> Ask(Request request);
  int iterations();  // as Engine's
  // Ends the run well. With an error: ends the run at all workers with `failure`, in the words of
  // this worker. Returns what went wrong elsewhere, or OK. Again: nothing.
  absl::Status Close(const absl::Status& failure);

  // Since the last call. OutOfRange: a loss is not finite, and that ends the run.
  absl::StatusOr<Reports> TakeReports();
  // Before clipping, over all stages. Nothing where it is not known.
  std::optional<double> GradientNorm(int iteration);
  double Rate(int64_t update) const;
  // What has ended the run here, if anything has.
  absl::Status status();

 private:
  absl::StatusOr<PlannedRun> Plan(const RunLength& length, bool collects,
                                  const PlanFunction& plan_model) const;
  // Of worker 0, where states stream: it says whether a step will wait for the disk. The errors of
  // JudgeTier and CheckHidden.
  absl::Status JudgeDisk(const PlannedModel& planned) const;
  RingModel& ring();
  void Hear(Iteration t, LapTask::Kind kind, const std::vector<double>& metrics);
  // What waits ends with `why`. Nothing after Close.
  void Abort(const absl::Status& why);

  Config config_;
  const std::vector<LayerFactory> layers_;
  std::optional<OutsideJob> job_;
  int self_ = 0;
  int64_t micro_steps_ = 0;
  LapTask lap_;
  bool has_norm_ = false;
  std::unique_ptr<OpenWorker> worker_;
  std::unique_ptr<RingModel> ring_;
  Mutex mutex_;
  Reports reports_ ABSL_GUARDED_BY(mutex_);
  absl::Status not_finite_ ABSL_GUARDED_BY(mutex_);    // the first time, if that ends the run
  Engine* running_ ABSL_GUARDED_BY(mutex_) = nullptr;  // ring_'s, for other threads
  SignalPipe signals_;                                 // last: its thread uses the rest
};

}  // namespace ringzero::python

#endif  // RINGZERO_PYTHON_BINDINGS_WORKER_H_
