// A short run whose workers report the processor time of their operations.
#include "integrations/cli/cost_profiler.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "integrations/cli/cores.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/train_worker.h"
#include "integrations/cli/worker_report.h"
#include "integrations/torch/run_workers.h"

namespace ringzero {
namespace {

// The first iterations take pages from the kernel for the first time.
constexpr int kLeftOut = 4;
constexpr int kMeasured = 6;

// The configuration with fewer workers and nothing else that happens.
Config ConfigOfProfile(const Config& config) {
  Config shorter = config;
  const int at_once = std::max(1, static_cast<int>(UsableCores() / config.cyclic.threads));
  shorter.cyclic.workers = std::min(config.cyclic.workers, at_once);
  shorter.zero_stage = 3;  // each update is one worker's
  shorter.cyclic.stagger = false;
  shorter.cyclic.retain = 0;
  shorter.cyclic.window = 0;
  shorter.cyclic.exchange = true;
  shorter.cyclic.inject = {};
  shorter.cyclic.track_activations = false;
  shorter.tensorboard.reset();
  shorter.csv_monitor.reset();
  return shorter;
}

CostProfile Combine(const Config& config, const std::vector<MeasuredCosts>& workers) {
  const auto count = static_cast<int64_t>(workers.size());
  CostProfile profile{.micro_batch = static_cast<int>(config.batch.micro_batch),
                      .threads = config.cyclic.threads,
                      .workers = static_cast<int>(workers.size()),
                      .layers = workers[0].stages};
  int64_t other = 0, messages = 0;
  for (const MeasuredCosts& worker : workers) {
    profile.lap_nanoseconds += worker.lap_nanoseconds / count;
    other += worker.other_nanoseconds;
    messages += worker.messages;
  }
  // Where torch has threads of its own, what those take cannot be told from messages.
  const bool told = messages > 0 && config.cyclic.threads == 1;
  profile.message_nanoseconds = told ? other / messages : 0;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    StageTicks sum;
    int64_t updates = 0;  // of the one worker that owns it
    for (const MeasuredCosts& worker : workers) {
      const StageTicks& times = worker.stages[i].nanoseconds;
      sum.forward += times.forward;
      sum.backward += times.backward;
      sum.add += times.add;
      updates += times.update;
    }
    profile.layers[i].nanoseconds = {.forward = sum.forward / count,
                                     .backward = sum.backward / count,
                                     .add = sum.add / count,
                                     .update = updates};
  }
  return profile;
}

}  // namespace

absl::StatusOr<CostProfile> MeasureCosts(const Config& config, const Dataset& data,
                                         const RunLength& length) {
  const Config shorter = ConfigOfProfile(config);
  RunLength few = length;
  few.iterations = kLeftOut + kMeasured;
  few.evaluation = {};
  std::fprintf(stderr, "ringzero: measuring %d iterations with %d workers at a time ...\n",
               few.iterations, shorter.cyclic.workers);
  const RunWorkersOptions options{
      .launch = {.workers = shorter.cyclic.workers, .peer_timeout = shorter.cyclic.peer_timeout},
      .threads = shorter.cyclic.threads,
      .metrics_count = kMetricsCount};
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      RunWorkers(
                          options, [&] { return PlanLayers(shorter, few, data.shape()); },
                          [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
                            TrainTask task{.config = shorter,
                                           .data = data,
                                           .length = few,
                                           .run = seat.run,
                                           .self = seat.self,
                                           .transport = std::move(seat.transport)};
                            task.costs_from = Iteration(kLeftOut);
                            RZ_ASSIGN_OR_RETURN(const WorkerReport report,
                                                TrainWorker(std::move(task)));
                            return ToJson(report);
                          }));
  std::vector<MeasuredCosts> costs;
  for (const std::string& result : results) {
    RZ_ASSIGN_OR_RETURN(WorkerReport report, FromJson(result));
    if (!report.costs.has_value()) return absl::InternalError("a worker has measured nothing");
    costs.push_back(*std::move(report.costs));
  }
  return Combine(shorter, costs);
}

}  // namespace ringzero
