// RunJob runs the workers of a job, each in a process of its own. Either it launches them
// (LaunchProcesses), gathers their reports, and ends all when one fails. Or this process is one
// worker of a job that others have launched.
//
//   absl::StatusOr<std::vector<std::string>> results = RunJob(
//       {.launch = {.workers = 4, .on_report = [](WorkerId, const std::string& kind,
//                                                 const std::string& text) {}},
//        .seat = seat},
//       [](WorkerContext& context) -> absl::StatusOr<std::string> {
//         RZ_RETURN_IF_ERROR(context.Agree(sections));
//         RZ_ASSIGN_OR_RETURN(Connection made, context.Connect({.options = needs}));
//         ... context.Report("progress", "step 7").IgnoreError(); ...
//         return "my summary";
//       });
//
// No process, socket or memory is left behind, however it ends, the launching process's own death
// by SIGKILL included.
#ifndef RINGZERO_P2P_JOB_LAUNCHER_H_
#define RINGZERO_P2P_JOB_LAUNCHER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "p2p/connect.h"
#include "p2p/job/rendezvous.h"
#include "p2p/shm/shm_endpoint.h"

namespace ringzero {

struct LaunchOptions {
  int workers = 1;
  int tasks = 1;  // of each worker, as in LaunchNeeds (p2p/job/limits.h)
  // For one process (`workers` is 1) that stands for the whole run: its name in errors about it
  // ("the planning process was killed …"). Errors that it reports itself have no name in front.
  std::string alone;
  // Called on the launching thread with what the workers Report, the reports of each worker in
  // their order. Nothing else is read meanwhile.
  std::function<void(WorkerId, const std::string& kind, const std::string& text)> on_report;
  // After a first failure the others may take `grace` to end by themselves. Then they get SIGTERM,
  // and SIGKILL a second later. After a signal that ends the launching process: SIGTERM at once.
  std::chrono::milliseconds grace = std::chrono::milliseconds(600);
  // A worker stopped (SIGSTOP) for so long is lost. A stopped worker that has to end gets SIGKILL.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
  // Signals to the launching process that are handed on to all workers, and mean nothing to it.
  std::vector<int> pass_on;
  // For workers that end early by themselves and return what they have done: after a first signal
  // that ends the launching process they get `signal` in place of SIGTERM, and SIGTERM `patience`
  // later. If all return a result, LaunchProcesses returns the results, and `by` says which signal
  // came. A second signal, 0.2 s or more after the first, sends SIGKILL to all at once.
  struct Interrupt {
    int signal = 0;  // 0: SIGTERM, and no results
    std::chrono::milliseconds patience = std::chrono::seconds(10);
    int* by = nullptr;
  } interrupt;
};

// Cancelled "interrupted by signal 2 (Interrupt)".
absl::Status InterruptedBy(int signal);

struct Record;
class RecordWriter;
class WorkerContext;
using WorkerBody = std::function<absl::StatusOr<std::string>(WorkerContext&)>;

// A worker's side of a job, in the worker's process. This program has launched the job, or the
// worker has a seat in a job from outside. Report and Fail are thread-safe.
class WorkerContext {
 public:
  WorkerContext(JobSeat seat, ShmEndpoint endpoint, RecordWriter& records);  // launched
  WorkerContext(JobSeat seat, const LaunchOptions& options);                 // in a seat
  ~WorkerContext();

  WorkerId self() const { return seat_.self; }
  int workers() const { return seat_.workers; }
  const JobSeat& Seat() const { return seat_; }
  // If so, all workers have the program and configuration of one process, and are on its host.
  bool launched() const { return options_ == nullptr; }

  // Compares what all workers must have alike (rendezvous/rendezvous.h). An error in place of the
  // statement ends all workers. Launched workers have nothing to compare.
  absl::Status Agree(const absl::StatusOr<std::vector<AgreementSection>>& statement);
  bool agreed() const { return agreed_; }

  // As Connect (p2p/connect.h); take_endpoint is given here. From here on signals ask for an early
  // end (LaunchOptions::interrupt), in a seat as in a launched process.
  absl::StatusOr<Connection> Connect(ConnectRequest request);
  // In place of Connect: nothing travels between the workers.
  void StayAlone();
  // A function that gives the launcher's endpoint for CreateShmTransport, once; null in a seat. If
  // it is never called, the others' transports wait for this worker's hello until the body returns.
  std::function<ShmEndpoint()> EndpointTaker();

  // Reports to on_report, and never waits for it. Unavailable if the launching process is gone,
  // ResourceExhausted (and not reported) if that process has left 1 MiB unread.
  absl::Status Report(const std::string& kind, const std::string& text);
  // Tells the launching process of a failure before the body returns: the body may still take long.
  // Errors as for Report.
  absl::Status Fail(const absl::Status& why);

 private:
  class SeatSignals;
  void HearSignals();
  absl::Status Write(const Record& record);

  const JobSeat seat_;
  ShmEndpoint endpoint_;
  Mutex mutex_;
  RecordWriter* const records_ ABSL_PT_GUARDED_BY(mutex_) = nullptr;  // null: in a seat
  const LaunchOptions* const options_ = nullptr;                      // null: launched
  bool agreed_ = false;
  std::unique_ptr<SeatSignals> signals_;
};

// Forks, runs `body` in every child, and returns what they returned, by worker. Call it from a
// process with one thread (FailedPrecondition otherwise), before anything starts more.
//
// Errors: the first root cause, with its worker's number in front ("worker 2: bad file"), not what
// the others report in turn. Unavailable: "worker 2 was killed by signal 9 (Killed)", with the
// kernel's count of processes that it ended for lack of memory, and with each other worker that was
// killed so; "worker 2 exited with code 3 and without a result"; or "worker 2 was stopped by signal
// 19 (Stopped (signal)); peer_timeout is 5 s". InterruptedBy: the launching process got SIGINT,
// SIGTERM or SIGHUP (but see LaunchOptions::interrupt). While this runs, the launching process does
// not see these signals otherwise; a SIGHUP that it ignores, as under nohup, stays ignored.
// ResourceExhausted of CheckLimits (p2p/job/limits.h), before anything is started. Time in which
// the launching process was stopped itself does not count, and stopping it stops no worker.
// Children ignore SIGINT, SIGHUP and SIGPIPE, die by SIGTERM, and leave by _exit with their output
// flushed. If memory is short, the kernel prefers to end a child, not the launching process. If the
// launching process dies by SIGKILL, worker 0 says so on stderr, and all workers end.
absl::StatusOr<std::vector<std::string>> LaunchProcesses(const LaunchOptions& options,
                                                         const WorkerBody& body);

struct JobOptions {
  LaunchOptions launch;
  // The seat of JoinOutsideJob: this process is one worker, and launches none. In `launch` then
  // only on_report, peer_timeout and interrupt count.
  std::optional<JobSeat> seat;
};

// A worker in a seat whose program keeps its own loop (a notebook, a Python script): RunJob in two
// halves.
//
//   SeatedWorker worker(seat, options);
//   absl::StatusOr<std::string> mine = work(worker.context());
//   absl::StatusOr<std::vector<std::string>> all = worker.Close(mine);
//
// Used by one thread. Destroyed without Close, it tells the other workers nothing: worker 0 waits
// for its result until the limit of ShareResults.
class SeatedWorker {
 public:
  // Of `options` on_report, peer_timeout and interrupt count.
  SeatedWorker(JobSeat seat, LaunchOptions options);
  SeatedWorker(const SeatedWorker&) = delete;
  SeatedWorker& operator=(const SeatedWorker&) = delete;

  WorkerContext& context() { return *context_; }  // until Close
  // Ends the context. If the worker has agreed (WorkerContext::Agree), worker 0 gets the results of
  // all workers, and another worker its own. Errors are those of ShareResults
  // (rendezvous/rendezvous.h), without this worker's number in front. Once.
  absl::StatusOr<std::vector<std::string>> Close(const absl::StatusOr<std::string>& mine);

 private:
  const JobSeat seat_;
  const LaunchOptions options_;
  std::unique_ptr<WorkerContext> context_;  // looks into options_
};

// LaunchProcesses; or, in a seat, runs `body` here, as a SeatedWorker.
absl::StatusOr<std::vector<std::string>> RunJob(const JobOptions& options, const WorkerBody& body);

// Runs the workers as threads of this process. Returns what they returned, by worker, or the first
// root cause with its worker's number in front.
absl::StatusOr<std::vector<std::string>> RunThreads(
    int workers, const std::function<absl::StatusOr<std::string>(WorkerId)>& body);

}  // namespace ringzero

#endif  // RINGZERO_P2P_JOB_LAUNCHER_H_
