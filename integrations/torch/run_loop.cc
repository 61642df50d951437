// Workers of a loop: here, launched, or in a seat of a job from outside.
#include "integrations/torch/run_loop.h"

#include <cstdio>
#include <string>
#include <utility>

#include "base/status.h"
#include "integrations/torch/outside_job.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "p2p/failure.h"
#include "p2p/launch/launcher.h"
#include "p2p/rendezvous/agreement.h"

namespace ringzero {
namespace {

using Loop = std::function<absl::Status(LoopWorker&)>;

absl::Status RunWorker(const LoopOptions& options, const Loop& loop, std::optional<ShardJob> job) {
  PrepareTorch(options.threads);
  LoopWorker worker(std::move(job));
  const absl::Status status = Guard([&] { return loop(worker); });
  worker.End(status);
  return status;
}

absl::Status RunProcesses(const LoopOptions& options, const Loop& loop) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    RZ_RETURN_IF_ERROR(RunWorker(options, loop,
                                 ShardJob{.seat = context.Seat(),
                                          .transport = options.transport,
                                          .take_endpoint = [&] { return context.TakeEndpoint(); },
                                          .peer_timeout = options.peer_timeout}));
    return std::string();
  };
  const LaunchNeeds needs =
      LaunchNeedsOf(RunWorkersOptions::As::kProcesses, options.workers, options.threads);
  return LaunchProcesses({.workers = options.workers,
                          .tasks = needs.tasks,
                          .peer_timeout = options.peer_timeout},
                         body)
      .status();
}

absl::Status RunInSeat(const LoopOptions& options, const Loop& loop, const JobSeat& seat) {
  const absl::Status status = RunWorker(options, loop,
                                        ShardJob{.seat = seat,
                                                 .transport = options.transport,
                                                 .take_endpoint = nullptr,
                                                 .peer_timeout = options.peer_timeout});
  return ReportedBy(seat.self, CauseOf(status));
}

}  // namespace

absl::StatusOr<TorchShardedOptimizer*> LoopWorker::MakeOptimizer(
    const std::vector<NamedTensor>& parameters, const TorchShardedOptions& options) {
  if (std::exchange(asked_, true)) {
    return absl::FailedPreconditionError(
        "a loop has one optimizer: give it the parameters of all models");
  }
  RZ_ASSIGN_OR_RETURN(optimizer_, TorchShardedOptimizer::Create(parameters, options, job_));
  if (workers() > 1 && self().value == 0) {
    std::fprintf(stderr, "optimizer: %s\n", DescribeOwners(optimizer_->shards()).c_str());
  }
  return optimizer_.get();
}

absl::StatusOr<TorchShardedOptimizer*> LoopWorker::MakeOptimizer(
    const torch::nn::Module& model, const TorchShardedOptions& options) {
  return MakeOptimizer(ParametersOf(model), options);
}

void LoopWorker::End(const absl::Status& status) {
  if (status.ok()) return;
  if (optimizer_ != nullptr) {
    optimizer_->Abort(status);
  } else if (workers() > 1 && !asked_) {
    Disagree(job_->seat, status);  // the others wait for its numbers
  }
}

absl::Status RunLoop(const LoopOptions& options, const Loop& loop) {
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity({}, CurrentEnvironment()));
  RZ_ASSIGN_OR_RETURN(const std::optional<OutsideJob> outside,
                      JoinOutsideJob(identity, options.peer_timeout));
  if (outside.has_value()) return RunInSeat(options, loop, outside->seat);
  if (options.workers == 1) return RunWorker(options, loop, std::nullopt);
  return RunProcesses(options, loop);
}

}  // namespace ringzero
