// RunWorkers: the workers of a run, each with the plan and its transport, as processes or threads;
// or this process as one worker of a job that somebody else has launched.
//
//   absl::StatusOr<std::vector<std::string>> results = RunWorkers(
//       {.launch = {.workers = 4}}, [] { return PlanMyModel(); },
//       [](WorkerSeat seat) -> absl::StatusOr<std::string> {
//         … RingModel::Create({…, .engine = {.self = seat.self, …}}) …
//         return "my summary"; });
//
// train_model.h does all of this for an ordinary loop. Called by a process of one thread that has
// not computed with torch yet: its children do (p2p/job/launcher.h). Nothing is left behind,
// however it ends.
#ifndef RINGZERO_INTEGRATIONS_TORCH_RUN_WORKERS_H_
#define RINGZERO_INTEGRATIONS_TORCH_RUN_WORKERS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "integrations/torch/layer_factory.h"
#include "p2p/connect.h"
#include "p2p/job/launcher.h"
#include "p2p/job/limits.h"
#include "p2p/job/rendezvous.h"
#include "p2p/transport.h"
#include "zero/model_plan.h"

namespace ringzero {

// A model as layer factories, described and cut into a plan. Every worker computes the same.
struct PlannedRun {
  std::vector<LayerFactory> layers;
  ModelDescription model;
  PlannedModel planned;
  double sample_flops = 0;  // of one sample, forward and backward, as counted; 0: not known
};

// PlanModel, or how the workers of a job do it together.
using PlanFunction =
    std::function<absl::StatusOr<PlannedModel>(const ModelDescription&, const PlanRequest&)>;
// Plans with the given function. Called in every process, with torch prepared; may throw.
using MakeRun = std::function<absl::StatusOr<PlannedRun>(const PlanFunction&)>;

// Sets torch's number of threads and its arithmetic, so that bits are equal everywhere. Call it
// once per computing thread, before any use of torch.
void PrepareTorch(int threads);

struct RunWorkersOptions {
  // workers: as in the plan; tasks: counted by RunWorkers. on_report: worker 0 reports a "note" of
  // what carries messages, and why.
  LaunchOptions launch;
  // This process' seat in a job from outside (JoinOutsideJob): it is one worker, and launches none.
  std::optional<JobSeat> seat;
  // In such a job: what the workers must have alike, in addition to versions and plan.
  std::vector<AgreementSection> agreement;
  TransportChoice transport = TransportChoice::kAuto;  // kLocal: threads of one process
  int threads = 1;                                     // torch's, in each worker
  int metrics_count = 1;                               // as in EngineOptions
  bool checksums = false;                              // p2p/transport_decorator.h
  // For tests that bring faults about. on_start: called first in every process (kLocal: for
  // worker 0). decorate: wraps each transport, inside of its checksums.
  std::function<void(WorkerId)> on_start;
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> decorate;
};

// One worker's place in the run.
struct WorkerSeat {
  WorkerId self{0};
  const PlannedRun& run;                 // outlives the worker's function
  std::unique_ptr<Transport> transport;  // null: nothing travels in this plan
  // To launch.on_report; Unavailable when the calling process is gone. Thread-safe.
  std::function<absl::Status(const std::string& kind, const std::string& text)> report;
};

// What the workers returned, by worker, as RunJob has it. `work` is called in every worker, and may
// throw. In a job from outside worker 0 alone verifies the plan; the others take its proof, and
// Agree finds out whether their plan is the same.
//
// Errors: those of RunJob; the first root cause has its worker's number in front ("worker 2: bad
// file") unless it is that of the one process of all workers (kLocal).
absl::StatusOr<std::vector<std::string>> RunWorkers(
    const RunWorkersOptions& options, const MakeRun& plan,
    const std::function<absl::StatusOr<std::string>(WorkerSeat)>& work);

// One worker of a job, for a program whose loop is its own: RunWorkers in two halves. This process
// is the worker.
//
//   RZ_ASSIGN_OR_RETURN(auto worker,
//                       OpenWorker::Open({.launch = {.workers = 4}, .seat = seat}, PlanMyModel));
//   … RingModel::Create({… .engine = {.transport = std::move(worker->seat().transport)}}) …
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> results, worker->Close("my summary"));
//
// Used by one thread. A worker that goes without Close ends the others only when they miss it.
class OpenWorker {
 public:
  // As RunWorkers, until `work` would be called. options.seat must be given: that of
  // JoinOutsideJob, or JobSeat{.rendezvous = MakeLocalRendezvous()} for a job of one worker. A
  // failure has been told to the other workers.
  static absl::StatusOr<std::unique_ptr<OpenWorker>> Open(RunWorkersOptions options,
                                                          const MakeRun& plan);

  WorkerSeat& seat() { return *seat_; }
  // As SeatedWorker::Close (p2p/job/launcher.h).
  absl::StatusOr<std::vector<std::string>> Close(const absl::StatusOr<std::string>& mine) {
    return worker_.Close(mine);
  }

 private:
  explicit OpenWorker(RunWorkersOptions options);

  const RunWorkersOptions options_;
  SeatedWorker worker_;
  absl::StatusOr<PlannedRun> run_;
  std::optional<WorkerSeat> seat_;
};

// What CheckLimits has to find when such workers are launched: for RunWorkers, and for a program
// that wants to know before it plans. `threads`: torch's, in each worker.
LaunchNeeds LaunchNeedsOf(TransportChoice transport, int workers, int threads);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RUN_WORKERS_H_
