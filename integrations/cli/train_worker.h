// TrainWorker: one worker of a training run: the ordinary loop over a RingModel, and its report at
// the end. The calling thread is the worker's computing thread, with torch prepared (PrepareTorch).
#ifndef RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_
#define RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/flight_desk.h"
#include "p2p/transport.h"
#include "zero/config/config.h"

namespace ringzero {

struct TrainTask {
  const RunInput& input;
  // Reports from worker 0 lines for a person, "progress" (overwritten) or "note". From all workers
  // "not_written", a line of WorkerReport::not_written ("metrics: FILE: cannot write it: …").
  WorkerSeat seat;
  CommandLine line;  // --init, --dump-parameters, --metrics and --trace…; the rest is not used
  FlightDesk* desk = nullptr;           // outlives the worker
  std::optional<Iteration> costs_from;  // measures operations from this iteration on
  bool launched = false;                // by an outside launcher, with cores for every worker
  bool terminal = false;                // progress is redrawn
  double worker_flops = 0;              // per second, on cores of its own; 0: unknown
  std::function<double()> pss_mib;      // this worker's share of its process' memory; null: 0
};

absl::StatusOr<WorkerReport> TrainWorker(TrainTask task);

// The one fault that cyclic.inject asks for, at its point of the run, and the latency of every
// message; for tests and benchmarks. Without a fault for this worker everything passes through.
// Before a process ends or stops it says so on stderr. One worker's; used by one thread.
class Injection {
 public:
  Injection(const InjectConfig& inject, WorkerId self);

  // A process may end or stop here.
  void Reach(InjectConfig::Point point) const;
  // Between two steps of saving, on the saver's thread.
  void ReachSave();
  // Messages count from here on.
  std::unique_ptr<Transport> Wrap(std::unique_ptr<Transport> transport) const;
  // Runs `lap`: from the configured lap on slowly, or stuck in that lap.
  absl::Status RunLap(const std::function<absl::Status()>& lap);

 private:
  InjectConfig inject_;  // action kNone on other workers
  uint64_t laps_ = 0, saves_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_
