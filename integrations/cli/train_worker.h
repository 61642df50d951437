// One worker of a training run: the ordinary loop over a RingModel, and its report at the end.
//
//   TrainTask task{.config = config, .data = *data, .length = length, .run = planned, …};
//   RZ_ASSIGN_OR_RETURN(WorkerReport report, TrainWorker(std::move(task)));
//
// The calling thread is the worker's computing thread, with torch prepared (PrepareTorch).
#ifndef RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_
#define RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/run_setup.h"
#include "integrations/cli/worker_report.h"
#include "integrations/data/dataset.h"
#include "integrations/sight/flight_desk.h"
#include "p2p/transport.h"
#include "zero/config/config.h"

namespace ringzero {

struct TrainTask {
  const Config& config;
  const Dataset& data;
  const RunLength& length;
  PlannedRun run;
  WorkerId self{0};
  std::unique_ptr<Transport> transport;  // null: nothing travels
  std::string init;                      // file, or empty
  std::string dump_parameters;           // file, or empty; written by worker 0
  FlightDesk* desk = nullptr;            // outlives the worker
  std::string trace_parts;               // folder, or empty: no trace
  TraceIterations trace_iterations;      // of it
  std::optional<Iteration> costs_from;   // measures operations from this one on
  std::string metrics;                   // folder, or empty; but for flights worker 0's alone
  bool launched = false;                 // by somebody else, with cores for every worker
  bool terminal = false;                 // progress is redrawn
  double worker_flops = 0;               // per second, on cores of its own; 0: unknown
  std::function<double()> pss_mib;       // this worker's share of its process' memory; null: 0
  // Worker 0: lines for a person, "progress" (to be overwritten) or "note". All: "not_written", a
  // line of WorkerReport::not_written ("metrics: FILE: cannot write it: …").
  std::function<void(const std::string& kind, const std::string& line)> say;
};

absl::StatusOr<WorkerReport> TrainWorker(TrainTask task);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_TRAIN_WORKER_H_
