// Workers as threads of this process, over the local transport.
#ifndef RINGZERO_INTEGRATIONS_CLI_LOCAL_WORKERS_H_
#define RINGZERO_INTEGRATIONS_CLI_LOCAL_WORKERS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/cli/train_worker.h"
#include "integrations/torch/model_plan.h"
#include "p2p/transport.h"

namespace ringzero {

// Runs TrainWorker(make_task(w, transport)) on a thread per worker and waits for all. The reports
// by worker, or the root cause of the failure with its worker's number in front.
absl::StatusOr<std::vector<WorkerReport>> TrainLocalWorkers(
    const PlannedModel& planned,
    const std::function<TrainTask(WorkerId, std::unique_ptr<Transport>)>& make_task);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_LOCAL_WORKERS_H_
