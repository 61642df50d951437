// RunJob: the workers of a job, each in a process of its own: launched here (LaunchProcesses),
// their reports gathered, all ended when one fails; or this process as one worker of a job that
// others have launched.
//
//   absl::StatusOr<std::vector<std::string>> results = RunJob(
//       {.launch = {.workers = 4,
//                   .on_report = [](WorkerId, const std::string& kind, const std::string& text) {}},
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
#ifndef RINGZERO_P2P_LAUNCH_LAUNCHER_H_
#define RINGZERO_P2P_LAUNCH_LAUNCHER_H_

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
#include "p2p/launch/worker_process.h"
#include "p2p/rendezvous/agreement.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/shm/shm_transport.h"

namespace ringzero {

struct LaunchOptions {
  int workers = 1;
  int tasks = 1;  // of each worker, as in LaunchNeeds (p2p/launch/limits.h)
  // For one process (`workers` is 1) that stands for the whole run: its name in errors about it
  // ("the planning process was killed …"). What it reports itself has no name in front.
  std::string alone;
  // Called on the launching thread with what the workers Report, each worker's in its order.
  // Nothing else is read meanwhile.
  std::function<void(WorkerId, const std::string& kind, const std::string& text)> on_report;
  // After a first failure the others may take `grace` to end by themselves; then they get SIGTERM
  // (after a signal that ends the launching process: at once), and SIGKILL a second later.
  std::chrono::milliseconds grace = std::chrono::milliseconds(600);
  // A worker that is stopped (SIGSTOP) for so long is lost; one that has to end gets SIGKILL.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
  // Signals to the launching process that are handed on to all workers, and mean nothing to it.
  std::vector<int> pass_on;
  // For workers that end early by themselves and return what they have done: after a first signal
  // that ends the launching process they get `signal` in place of SIGTERM, and SIGTERM `patience`
  // later. If all return a result, LaunchProcesses returns the results, and `by` says which signal
  // came. A second signal, from 0.2 s after the first on, is SIGKILL to all, at once.
  struct Interrupt {
    int signal = 0;  // 0: SIGTERM, and no results
    std::chrono::milliseconds patience = std::chrono::seconds(10);
    int* by = nullptr;
  } interrupt;
};

// Cancelled "interrupted by signal 2 (Interrupt)".
absl::Status InterruptedBy(int signal);

class WorkerContext;
using WorkerBody = std::function<absl::StatusOr<std::string>(WorkerContext&)>;

// A worker's side, in its own process: of a job that this program has launched, or in a seat of a
// job from outside. Report and Fail are thread-safe.
class WorkerContext {
 public:
  WorkerContext(JobSeat seat, ShmEndpoint endpoint, RecordWriter& records);  // launched
  WorkerContext(JobSeat seat, const LaunchOptions& options);                 // in a seat
  ~WorkerContext();

  WorkerId self() const { return seat_.self; }
  int workers() const { return seat_.workers; }
  const JobSeat& Seat() const { return seat_; }
  // Then all workers have the program and the configuration of one process, and are where it is.
  bool launched() const { return options_ == nullptr; }

  // What all workers must have alike is compared (rendezvous/agreement.h); an error in place of it
  // ends all of them. If they are launched there is nothing to compare.
  absl::Status Agree(const absl::StatusOr<std::vector<AgreementSection>>& statement);
  bool agreed() const { return agreed_; }

  // As Connect (p2p/connect.h); take_endpoint is given here. From here on signals ask for an early
  // end (LaunchOptions::interrupt), in a seat as in a launched process.
  absl::StatusOr<Connection> Connect(ConnectRequest request);
  // In place of Connect: nothing travels between the workers.
  void StayAlone();
  // Gives the launcher's end for CreateShmTransport, once; null in a seat. If it is never taken, the
  // others' transports wait for this worker's hello until the body returns.
  std::function<ShmEndpoint()> EndpointTaker();

  // To on_report; never waits for it. Unavailable when the launching process is gone,
  // ResourceExhausted (and not reported) when it has left 1 MiB unread.
  absl::Status Report(const std::string& kind, const std::string& text);
  // Tells the launching process the failure before the body returns, which it may take long to do.
  // Errors as Report.
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
// the others report in turn; Unavailable "worker 2 was killed by signal 9 (Killed)", with what the
// kernel counts of processes that it ended for lack of memory, and with each other worker that was
// killed so, "worker 2 exited with code 3 and without a result" or "worker 2 was stopped by signal
// 19 (Stopped (signal)); peer_timeout is 5 s"; InterruptedBy when the launching process got SIGINT,
// SIGTERM or SIGHUP (but see LaunchOptions::interrupt), which it does not see otherwise while this
// runs (a SIGHUP that it ignores, as under nohup, stays ignored); ResourceExhausted, before
// anything is started, of CheckLimits (p2p/launch/limits.h). Time in which the launching process
// was stopped itself does not count, and stopping it stops no worker. Children ignore SIGINT,
// SIGHUP and SIGPIPE, die by SIGTERM, and leave by _exit with their output flushed. The kernel's
// choice of whom to end for lack of memory prefers them to the launching process. When that one
// dies by SIGKILL, worker 0 says so on stderr, and all end.
absl::StatusOr<std::vector<std::string>> LaunchProcesses(const LaunchOptions& options,
                                                         const WorkerBody& body);

struct JobOptions {
  LaunchOptions launch;
  // Of JoinOutsideJob: this process is one worker, and launches none. Of `launch` only on_report,
  // peer_timeout and interrupt count then.
  std::optional<JobSeat> seat;
};

// LaunchProcesses; or `body` here, in a seat. Then, if it has called Agree, worker 0 returns what
// all workers returned, another worker its own result, and errors are those of ShareResults
// (rendezvous/agreement.h), without this worker's number in front.
absl::StatusOr<std::vector<std::string>> RunJob(const JobOptions& options, const WorkerBody& body);

// Workers that are threads of this process: what they returned, by worker, or the first root cause
// with its worker's number in front.
absl::StatusOr<std::vector<std::string>> RunThreads(
    int workers, const std::function<absl::StatusOr<std::string>(WorkerId)>& body);

}  // namespace ringzero

#endif  // RINGZERO_P2P_LAUNCH_LAUNCHER_H_
