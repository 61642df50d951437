// RunLoop: an ordinary LibTorch loop in every worker: one process, several of this host, or those
// that torchrun, mpirun or srun has started.
//
//   const absl::Status status = RunLoop({.workers = 4}, [](LoopWorker& worker) -> absl::Status {
//     torch::nn::Linear model(8, 1);
//     RZ_ASSIGN_OR_RETURN(TorchShardedOptimizer * optimizer,
//                         worker.MakeOptimizer(*model, {.optimizer = {.learning_rate = 1e-3}}));
//     for (…; batch += worker.workers()) {
//       optimizer->ZeroGrad();
//       LossOf(model, batch).backward();
//       RZ_RETURN_IF_ERROR(optimizer->Step());
//     }
//     return absl::OkStatus(); });
//
// examples/sharded_optimizer is a whole program.
#ifndef RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_
#define RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/status.h"  // what a loop is written with
#include "integrations/torch/torch_sharded_optimizer.h"
#include "p2p/connect.h"
#include "zero/sharded_optimizer.h"

namespace ringzero {

struct LoopOptions {
  int workers = 1;  // processes of this host; a launcher from outside says it instead
  int threads = 1;  // torch's, in each worker
  TransportChoice transport = TransportChoice::kAuto;
  // A worker without a sign of life for so long is lost (TransportOptions, LaunchOptions).
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
};

// One worker's place, used by its own thread.
class LoopWorker {
 public:
  // Without a job: the only one.
  explicit LoopWorker(std::optional<ShardJob> job) : job_(std::move(job)) {}

  WorkerId self() const { return job_.has_value() ? job_->seat.self : WorkerId(0); }
  int workers() const { return job_.has_value() ? job_->seat.workers : 1; }

  // TorchShardedOptimizer::Create, once (FailedPrecondition): parameters that are to be updated
  // together are given together. Lives as long as the worker. With more workers than one, worker 0
  // prints on stderr who owns how many bytes (DescribeOwners in zero/flat_shards.h).
  absl::StatusOr<TorchShardedOptimizer*> MakeOptimizer(const torch::nn::Module& model,
                                                       const TorchShardedOptions& options);
  absl::StatusOr<TorchShardedOptimizer*> MakeOptimizer(const std::vector<NamedTensor>& parameters,
                                                       const TorchShardedOptions& options);

  // The loop has come to `status`: a failure ends the others, wherever they wait.
  void End(const absl::Status& status);

 private:
  const std::optional<ShardJob> job_;
  bool asked_ = false;
  std::unique_ptr<TorchShardedOptimizer> optimizer_;
};

// `loop` is called in every worker, with torch's threads set; it may throw. One worker, and one
// under a launcher, is this process; several are children of it, which must have one thread and not
// have computed with torch yet (p2p/launch/launcher.h). Nothing is left behind, however it ends.
//
// Errors: the first root cause, with its worker's number in front unless there is but one; under a
// launcher from outside what this worker knows of it. Those of LaunchProcesses, FindIdentity and
// JoinOutsideJob.
absl::Status RunLoop(const LoopOptions& options,
                     const std::function<absl::Status(LoopWorker&)>& loop);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_
