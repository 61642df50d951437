// Starts the threads and finds the root cause among what they return.
#include "integrations/cli/local_workers.h"

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/failure.h"
#include "p2p/local_transport.h"
#include "zero/transport_needs.h"

namespace ringzero {

absl::StatusOr<std::vector<WorkerReport>> TrainLocalWorkers(
    const PlannedModel& planned,
    const std::function<TrainTask(WorkerId, std::unique_ptr<Transport>)>& make_task) {
  const Plan& plan = planned.plan;
  std::vector<std::unique_ptr<Transport>> transports(static_cast<size_t>(plan.workers));
  if (NeedsTransport(plan)) {
    std::vector<TransportOptions> options;
    for (int w = 0; w < plan.workers; ++w) {
      options.push_back(TransportNeeds(plan, planned.layouts, WorkerId(w), kMetricsCount));
    }
    RZ_ASSIGN_OR_RETURN(transports, CreateLocalTransports(options));
  }
  std::vector<absl::StatusOr<WorkerReport>> results(transports.size(),
                                                    absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (size_t w = 0; w < transports.size(); ++w) {
    threads.emplace_back([&, w] {
      results[w] = TrainWorker(make_task(WorkerId(static_cast<int>(w)), std::move(transports[w])));
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<WorkerReport> reports;
  absl::Status echo;
  for (size_t w = 0; w < results.size(); ++w) {
    if (results[w].ok()) {
      reports.push_back(*std::move(results[w]));
    } else if (!IsEcho(results[w].status())) {
      return Annotate(results[w].status(), absl::StrCat("worker ", w));
    } else if (echo.ok()) {
      echo = CauseOf(results[w].status());
    }
  }
  if (!echo.ok()) return echo;
  return reports;
}

}  // namespace ringzero
