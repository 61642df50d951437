// TorchShardedOptimizer: an optimizer for an ordinary LibTorch loop, its states sharded over the
// workers.
//
//   RZ_ASSIGN_OR_RETURN(const auto optimizer,
//                       TorchShardedOptimizer::Create(
//                           ParametersOf(*model), {.optimizer = {.learning_rate = 1e-3}}, job));
//   for (…) {
//     optimizer->ZeroGrad();
//     LossOf(model, batch).backward();
//     RZ_RETURN_IF_ERROR(optimizer->Step());
//   }
//
// Used as one of torch.optim's, in every worker, each with micro-batches of its own: micro-batch
// l·N + w of an update is worker w's l-th. Step averages their gradients over all of them, clips by
// their norm if there is a max_norm, and leaves the same new values on every worker. The bits are
// those of one process with all micro-batches (zero/sharded_optimizer.h); each worker has the
// states of its shard alone: of whole parameters, so that shards can be of unequal size
// (zero/flat_shards.h). Buffers (running statistics) stay each worker's own.
//
// run_loop.h starts the workers. Used by one thread. After an error nothing but its end is left.
#ifndef RINGZERO_INTEGRATIONS_TORCH_TORCH_SHARDED_OPTIMIZER_H_
#define RINGZERO_INTEGRATIONS_TORCH_TORCH_SHARDED_OPTIMIZER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/torch.h"
#include "zero/sharded_optimizer.h"

namespace ringzero {

struct TorchShardedOptions {
  OptimizerOptions optimizer;
  int micro_batches = 1;  // of each worker, in one update: calls of Step
  int threads = 1;        // of the update
  std::chrono::milliseconds wait_timeout = std::chrono::minutes(10);
};

class TorchShardedOptimizer {
 public:
  // Parameters, as ParametersOf(*model) gives them, are dense fp32 tensors of the CPU without
  // memory in common, the same in all workers; their values become the owners'. One that requires
  // no gradient is frozen. Keeps the tensors. Without a job: one process. InvalidArgument: names
  // the parameter, or as ShardedOptimizer::Create.
  static absl::StatusOr<std::unique_ptr<TorchShardedOptimizer>> Create(
      const std::vector<NamedTensor>& parameters, const TorchShardedOptions& options,
      const std::optional<ShardJob>& job = std::nullopt);

  // One micro-batch, of whose own mean loss each .grad is. After the update's last one the
  // parameters have their new values; before that nothing of them changes. Leaves .grad as it is:
  // ZeroGrad comes before the next backward. A parameter without .grad in all micro-batches of all
  // workers is left alone.
  // InvalidArgument: a .grad that is not dense fp32 of the CPU, laid out as its parameter.
  // FailedPrecondition: a parameter that has got other memory since Create, or one with a .grad
  // that was frozen then. Otherwise as ShardedOptimizer::Step: every wait has a limit
  // (wait_timeout) and says what for.
  absl::Status Step();
  void ZeroGrad();  // drops every .grad

  int64_t updates() const { return sharded_->updates(); }
  double rate() const { return sharded_->rate(); }  // of the next update, before groups' factors
  double gradient_norm() const { return sharded_->gradient_norm(); }
  // Of the parameters that this worker owns, fp32 in each parameter's own storage order.
  void VisitStates(const std::function<void(const ShardedOptimizer::NamedState&)>& visit) const {
    sharded_->VisitStates(visit);
  }
  const FlatShards& shards() const { return sharded_->shards(); }  // who owns what
  // Ends the loops of all workers with `why`, as seen from here.
  void Abort(const absl::Status& why) { sharded_->Abort(why); }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    at::Tensor values;  // a second handle on its memory, which lives as long as this one
    bool trainable = true;
  };

  // Null: it has none.
  static absl::StatusOr<const float*> GradientOf(const Parameter& parameter);

  std::vector<Parameter> parameters_;
  std::unique_ptr<ShardedOptimizer> sharded_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_TORCH_SHARDED_OPTIMIZER_H_
