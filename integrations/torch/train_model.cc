// From a user's model and loop to running workers.
#include "integrations/torch/train_model.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "integrations/torch/describe_model.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/job/join_job.h"

namespace ringzero {

absl::Status TrainModel(const TrainOptions& options,
                        const std::function<absl::StatusOr<Model>()>& model,
                        const std::function<absl::Status(RingModel&)>& loop) {
  RZ_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  TrainOptions mine = options;
  mine.plan.optimizer = options.optimizer;
  RunWorkersOptions& run = mine.run;
  if (run.transport != TransportChoice::kLocal) {
    RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                        FindIdentity({}, CurrentEnvironment()));
    RZ_ASSIGN_OR_RETURN(const std::optional<OutsideJob> job,
                        JoinOutsideJob(identity, {.peer_timeout = run.launch.peer_timeout,
                                                  .open_tcp = OpenTcpStore}));
    if (job.has_value()) {
      run.seat = job->seat;
      mine.plan.workers = job->seat.workers;
    }
  }
  run.launch.workers = mine.plan.workers;
  const std::vector<std::string> hosts = run.seat.value_or(JobSeat()).hosts;
  mine.plan.lends = options.plan.lends && !run.checksums;
  const auto make_run = [&](const PlanFunction& plan_model) -> absl::StatusOr<PlannedRun> {
    RZ_ASSIGN_OR_RETURN(mine.plan.hosts, WorkersThatShare(run.transport, hosts, mine.plan.workers));
    RZ_ASSIGN_OR_RETURN(Model made, model());
    PlannedRun result{.layers = std::move(made.layers)};
    RZ_ASSIGN_OR_RETURN(result.model, DescribeModel(result.layers, made.example));
    RZ_ASSIGN_OR_RETURN(result.planned, plan_model(result.model, mine.plan));
    return result;
  };
  const auto work = [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
    RZ_ASSIGN_OR_RETURN(const std::unique_ptr<RingModel> ring,
                        RingModel::Create({.layers = seat.run.layers,
                                           .planned = seat.run.planned,
                                           .engine = {.self = seat.self,
                                                      .transport = std::move(seat.transport),
                                                      .optimizer = options.optimizer,
                                                      .seed = options.seed,
                                                      .metrics_count = run.metrics_count,
                                                      .on_report = options.on_report,
                                                      .wait_timeout = options.wait_timeout}}));
    RZ_RETURN_IF_ERROR(loop(*ring));
    RZ_RETURN_IF_ERROR(ring->Finish());
    return std::string();
  };
  return RunWorkers(run, make_run, work).status();
}

}  // namespace ringzero
