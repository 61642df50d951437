// From a user's model and loop to running workers.
#include "integrations/torch/train_model.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/outside_job.h"

namespace ringzero {
namespace {

absl::StatusOr<PlannedRun> PlanOf(const TrainOptions& options,
                                  const std::function<absl::StatusOr<Model>()>& model) {
  RZ_ASSIGN_OR_RETURN(Model made, model());
  PlannedRun run{.layers = std::move(made.layers)};
  RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, made.example));
  PlanRequest request = options.plan;
  request.optimizer = options.optimizer;
  RZ_ASSIGN_OR_RETURN(run.planned, PlanModel(run.model, request));
  return run;
}

absl::Status Train(const TrainOptions& options, const std::function<absl::Status(RingModel&)>& loop,
                   WorkerSeat seat) {
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<RingModel> ring,
                      RingModel::Create({.layers = seat.run.layers,
                                         .description = seat.run.model,
                                         .planned = seat.run.planned,
                                         .seed = options.seed,
                                         .self = seat.self,
                                         .transport = std::move(seat.transport),
                                         .optimizer = options.optimizer,
                                         .metrics_count = options.metrics_count,
                                         .on_report = options.on_report,
                                         .wait_timeout = options.wait_timeout}));
  RZ_RETURN_IF_ERROR(loop(*ring));
  return ring->Finish();
}

}  // namespace

absl::Status TrainModel(const TrainOptions& options,
                        const std::function<absl::StatusOr<Model>()>& model,
                        const std::function<absl::Status(RingModel&)>& loop) {
  RZ_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  TrainOptions mine = options;
  std::optional<JobSeat> seat;
  if (options.as == RunWorkersOptions::As::kProcesses) {
    RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                        FindIdentity({}, CurrentEnvironment()));
    RZ_ASSIGN_OR_RETURN(std::optional<OutsideJob> job,
                        JoinOutsideJob(identity, options.peer_timeout));
    if (job.has_value()) {
      seat = std::move(job->seat);
      mine.plan.workers = seat->workers;
    }
  }
  // Those that are started here are on one host.
  mine.plan.free_slots = !seat.has_value() && options.transport != TransportChoice::kUcx &&
                         options.transport != TransportChoice::kNccl;
  return RunWorkers(
             {.workers = mine.plan.workers,
              .as = options.as,
              .transport = options.transport,
              .seat = std::move(seat),
              .threads = options.threads,
              .metrics_count = options.metrics_count,
              .peer_timeout = options.peer_timeout,
              .checksums = options.checksums},
             [&] { return PlanOf(mine, model); },
             [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
               RZ_RETURN_IF_ERROR(Train(mine, loop, std::move(seat)));
               return std::string();
             })
      .status();
}

}  // namespace ringzero
