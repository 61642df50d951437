// ShardedOptimizer: any optimizer of this engine, alone: parameters in flat shards, one per worker,
// each with its states and its update; gradients travel to it and new values away from it.
//
//   RZ_ASSIGN_OR_RETURN(auto optimizer,
//                       ShardedOptimizer::Create({.optimizer = {.learning_rate = 1e-3},
//                                                 .parameters = specs}, values, job));
//   for (…) {                                                     // one micro-batch each
//     RZ_RETURN_IF_ERROR(optimizer->AddGradients(gradients));
//     if (optimizer->ready()) RZ_RETURN_IF_ERROR(optimizer->Step());
//   }
//
// Micro-batch l·N + w of an update is worker w's l-th. Sums are folded in that order, whatever N
// is, divided once by their number, and the owner updates: with the same micro-batches the bits are
// the same for any number of workers and of threads. With max_norm the gradient is clipped by its
// norm over all parameters, of the same update. A parameter without a gradient in a whole update is
// left alone. A worker owns whole parameters: FlatShards says how unequal shards can be. Not
// thread-safe. After an error nothing but its end is left.
#ifndef RINGZERO_ZERO_OPTIMIZER_SHARDED_OPTIMIZER_H_
#define RINGZERO_ZERO_OPTIMIZER_SHARDED_OPTIMIZER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "offload/io_engine.h"
#include "p2p/connect.h"
#include "p2p/job/rendezvous.h"
#include "zero/optimizer/optimizer.h"
#include "zero/optimizer/shard_ring.h"
#include "zero/state_tier.h"
#include "zero/streams.h"
#include "zero/worker_pool.h"

namespace ringzero {

// The states of large parameters in a file, instead of memory (docs/offload.md). The bits stay.
struct ShardTier {
  std::string folder;
  int64_t staging_bytes = 64 << 20;  // of memory through which they come and go; at least a piece
  IoEngineOptions io;
};

struct ShardedOptimizerOptions {
  OptimizerOptions optimizer;
  std::vector<ParameterSpec> parameters;  // of the model, in the same order everywhere
  int micro_batches = 1;                  // of each worker, in one update
  int threads = 1;                        // of the update
  std::chrono::milliseconds wait_timeout = std::chrono::minutes(10);
  std::optional<ShardTier> tier;  // each worker has a file of its own
};

// The other workers. One optimizer per job.
struct ShardJob {
  JobSeat seat;
  TransportChoice transport = TransportChoice::kAuto;
  std::function<ShmEndpoint()> take_endpoint;                        // as in ConnectRequest
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);  // as in TransportOptions
};

class ShardedOptimizer {
 public:
  // `values`: the memory of each parameter, fp32, in its own storage order; it must outlive the
  // optimizer, which writes it in Create (the owner's initial values) and in Step.
  // Without a job: one process. InvalidArgument: bad options, a group that matches no parameter, or
  // workers whose options differ; errors of Agree and Connect.
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(
      ShardedOptimizerOptions options, std::vector<float*> values,
      const std::optional<ShardJob>& job = std::nullopt);
  // Over a transport that has ShardRing::Needs for `lends` (ShardRing::Options).
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> CreateOver(
      ShardedOptimizerOptions options, std::vector<float*> values,
      std::unique_ptr<Transport> transport, bool lends);

  // One micro-batch, by parameter; null: it has none. Undivided, of the micro-batch's own loss.
  // FailedPrecondition when the update is already complete.
  absl::Status AddGradients(std::span<const float* const> gradients);
  // Has this worker added all its micro-batches of the update?
  bool ready() const { return lap_ == options_.micro_batches; }
  // Updates this worker's shard and receives all others'. FailedPrecondition unless ready(). Errors
  // of a tier's disk, also of what the update before could not write.
  absl::Status Step();

  int64_t updates() const { return update_; }  // done so far
  double rate() const;                         // of the next one, before groups' factors
  // Of the averaged gradient in the last update, before clipping; 0 before the first, and without
  // max_norm.
  double gradient_norm() const { return norm_; }

  // What this worker holds, in the order of its shard: "step", "exp_avg", …; `step` as one value.
  struct NamedState {
    const std::string& parameter;
    std::string state;
    std::span<const float> values;  // `step`: valid during the call; others until AddGradients
  };
  // Errors: the disk's, where states lie in a file.
  absl::Status VisitStates(const std::function<void(const NamedState&)>& visit) const;
  // The other way, on all workers, between two updates: `fill` gets each of these to fill. The rate
  // goes by `updates`, the number done so far. FailedPrecondition: within an update; errors of
  // `fill`.
  absl::Status LoadStates(
      int64_t updates,
      const std::function<absl::Status(const std::string& parameter, const std::string& state,
                                       std::span<float> values)>& fill);
  const FlatShards& shards() const { return *shards_; }
  // For the user: what the tier's folder or the system does not give.
  const std::vector<std::string>& notes() const { return tier_.notes; }
  WorkerId self() const { return ring_->self(); }

  // Ends the optimizers of all workers with `why`: what waits there gets it. Without this the
  // others take this one's end for a goodbye.
  void Abort(const absl::Status& why) { ring_->Abort(why); }

 private:
  ShardedOptimizer(ShardedOptimizerOptions options, std::vector<float*> values,
                   std::unique_ptr<FlatShards> shards, std::unique_ptr<ShardRing> ring);
  const StageLayout& mine() const { return shards_->layouts[self().value]; }
  absl::Status ShareInitialValues();
  // Of all shards; `sum` is this worker's, or null.
  absl::StatusOr<double> Norm(const std::byte* sum, double divisor);
  absl::Status RunBlocks(const UpdateInput& input, std::byte* out);
  // Of the blocks from begin to end, those of one thread.
  struct Share {
    size_t begin = 0, end = 0;
    size_t thread = 0, threads = 1;
    bool updates = true;  // false: pieces are let go of, and nothing else
  };
  // Ends early if the disk fails.
  void RunShare(const UpdateInput& input, std::byte* out, const Share& share);
  StageId stage() const { return StageId(self().value); }
  absl::Status BeginStreams();
  // Lets go of what was fetched, as it is in the file.
  absl::Status DropFetched();
  // All pieces are released: once they are in the file they are fetched for the next update.
  absl::Status StoreAndFetch();
  // Until `came`, or an error of the disk, which the store's wait_timeout limits.
  absl::Status AwaitDisk(const bool& came) const;
  void Came(bool& what);
  // From a shard into the parameters.
  void Show(int shard, const std::byte* parameters);

  const ShardedOptimizerOptions options_;
  const std::vector<float*> values_;
  const std::unique_ptr<FlatShards> shards_;  // where the ring looks
  std::unique_ptr<ShardRing> ring_;
  std::unique_ptr<StageOptimizer> optimizer_;
  std::vector<std::unique_ptr<WorkerPool>> pools_;  // none: one thread, the caller's
  Buffer scratch_;
  int64_t update_ = 0;
  int lap_ = 0;
  double norm_ = 0;

  // Where states stream:
  OpenedTier tier_;
  mutable std::mutex disk_mutex_;  // of the next three
  mutable std::condition_variable disk_;
  absl::Status disk_status_;
  bool stored_ = true;            // the file has all states
  mutable bool visited_ = false;  // the mapped file has taken memory
  Streams streams_;               // last: its thread uses all of the above
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_SHARDED_OPTIMIZER_H_
