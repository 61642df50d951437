// RunLoop: an ordinary LibTorch loop in every worker: one process, several of this host, or those
// that torchrun, mpirun or srun has started.
//
//   const auto loop = [](LoopWorker& worker) -> absl::Status {
//     RZ_ASSIGN_OR_RETURN(auto* optimizer, worker.MakeOptimizer(*model, {.optimizer = {…}}));
//     … optimizer->ZeroGrad(); loss.backward(); RZ_RETURN_IF_ERROR(optimizer->Step()); …
//   };
//   const absl::Status status = RunLoop({.launch = {.workers = 4}}, loop);
//
// README.md has the loop, and examples/sharded_optimizer is a whole program.
#ifndef RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_
#define RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/status.h"  // what a loop is written with
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/torch.h"
#include "p2p/connect.h"
#include "p2p/job/launcher.h"
#include "zero/optimizer/sharded_optimizer.h"

namespace ringzero {

// An optimizer for an ordinary LibTorch loop, its states sharded over the workers.
//
// Used like an optimizer of torch.optim, in every worker, each with micro-batches of its own:
// micro-batch l·N + w of an update is worker w's l-th. Step averages the gradients of all of these
// micro-batches, clips by their norm if there is a max_norm, and leaves the same new values on
// every worker. The bits are those of one process with all micro-batches
// (zero/optimizer/sharded_optimizer.h). Each worker has the optimizer state of its shard alone. A
// shard has whole parameters, so shards can be of unequal size (zero/optimizer/shard_ring.h).
// Buffers (running statistics) stay each worker's own. Used by one thread. After an error it can
// only be ended.
class TorchShardedOptimizer {
 public:
  // `parameters`, as ParametersOf(*model) gives them: dense fp32 tensors of the CPU without memory
  // in common, the same in all workers; their values become the owners'. A parameter that requires
  // no gradient is frozen. Keeps the tensors, and fills in options.parameters. Without a job: one
  // process. InvalidArgument: names the parameter, or as ShardedOptimizer::Create.
  static absl::StatusOr<std::unique_ptr<TorchShardedOptimizer>> Create(
      const std::vector<NamedTensor>& parameters, ShardedOptimizerOptions options,
      const std::optional<ShardJob>& job = std::nullopt);

  // Adds one micro-batch; each .grad is that of the micro-batch's own mean loss. After the update's
  // last micro-batch the parameters have their new values; before that nothing of them changes.
  // Leaves .grad as it is: ZeroGrad comes before the next backward. A parameter without .grad in
  // all micro-batches of all workers is left alone.
  // InvalidArgument: a .grad that is not dense fp32 of the CPU, laid out as its parameter.
  // FailedPrecondition: a parameter that has got other memory since Create, or a .grad of a
  // parameter that was frozen then. Otherwise as ShardedOptimizer::Step: every wait has a limit
  // (wait_timeout) and says what for.
  absl::Status Step();
  void ZeroGrad();  // drops every .grad

  int64_t updates() const { return sharded_->updates(); }
  double rate() const { return sharded_->rate(); }  // of the next update, before groups' factors
  double gradient_norm() const { return sharded_->gradient_norm(); }
  // Who owns what, and this worker's states; for SaveOptimizerStates and LoadOptimizerStates
  // (integrations/checkpoint/checkpoint.h).
  ShardedOptimizer& sharded() { return *sharded_; }
  // Ends the loops of all workers with `why`, as seen from here.
  void Abort(const absl::Status& why) { sharded_->Abort(why); }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    at::Tensor values;  // a second handle on its memory, which keeps the memory alive
    bool trainable = true;
  };

  // Null: the parameter has no gradient.
  static absl::StatusOr<const float*> GradientOf(const Parameter& parameter);

  std::vector<Parameter> parameters_;
  std::unique_ptr<ShardedOptimizer> sharded_;
};

struct LoopOptions {
  LaunchOptions launch;  // workers: on this host; a launcher from outside gives the number instead
  int threads = 1;       // torch's, in each worker
  TransportChoice transport = TransportChoice::kAuto;
};

// One worker's place, used by its own thread.
class LoopWorker {
 public:
  // Without a job: the only one.
  explicit LoopWorker(std::optional<ShardJob> job) : job_(std::move(job)) {}

  WorkerId self() const { return job_.has_value() ? job_->seat.self : WorkerId(0); }
  int workers() const { return job_.has_value() ? job_->seat.workers : 1; }

  // TorchShardedOptimizer::Create. A second call is FailedPrecondition: give all parameters that
  // are to be updated together. The optimizer lives as long as the worker. With several workers,
  // worker 0 prints on stderr who owns how many bytes (DescribeOwners in
  // zero/optimizer/shard_ring.h). It prints the notes of a tier, too, also alone.
  absl::StatusOr<TorchShardedOptimizer*> MakeOptimizer(const torch::nn::Module& model,
                                                       const ShardedOptimizerOptions& options) {
    return MakeOptimizer(ParametersOf(model), options);
  }
  absl::StatusOr<TorchShardedOptimizer*> MakeOptimizer(const std::vector<NamedTensor>& parameters,
                                                       const ShardedOptimizerOptions& options);

  // The loop ended with `status`: a failure ends the other workers, wherever they wait.
  void End(const absl::Status& status);

 private:
  const std::optional<ShardJob> job_;
  bool asked_ = false;
  std::unique_ptr<TorchShardedOptimizer> optimizer_;
};

// `loop` is called in every worker, with torch's threads set; it may throw. One worker, or one
// under a launcher, is this process. Several are its children: it then must have one thread and not
// have computed with torch yet (p2p/job/launcher.h). Nothing is left behind, however it ends.
//
// Errors: the first root cause, with its worker's number in front if there are several workers;
// under a launcher from outside, what this worker knows of the cause. Also those of
// LaunchProcesses, FindIdentity and JoinOutsideJob.
absl::Status RunLoop(const LoopOptions& options,
                     const std::function<absl::Status(LoopWorker&)>& loop);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RUN_LOOP_H_
