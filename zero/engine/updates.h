// Updates: the owner's updates, and what is kept of them for a collection, on the pool.
// With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_UPDATES_H_
#define RINGZERO_ZERO_ENGINE_UPDATES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/norms.h"
#include "zero/engine/sums.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"
#include "zero/saver.h"
#include "zero/streams.h"
#include "zero/version_files.h"
#include "zero/worker_pool.h"

namespace ringzero {

// An update under way: reads θ_t and the sum, writes `out`.
class PendingUpdate {
 public:
  // `input`: its memory stays until the last Step, its scratch is no other update's meanwhile.
  PendingUpdate(StageId stage, StageOptimizer& optimizer, Streams& streams,
                const UpdateInput& input, std::byte* out)
      : optimizer_(optimizer), update_(stage, optimizer, streams, input, out) {}
  // Before each Step: StreamedUpdate's.
  bool Ready(StateStore::Done again) {
    return next_ >= optimizer_.blocks().size() || update_.Ready(next_, std::move(again));
  }
  // Sums the squares of the gradients, too, each block before it is updated with.
  void CountSquares() { squares_ = 0; }
  // One block; false when that was the last.
  bool Step();
  // Of the averaged gradient, before clipping; nothing: they were not counted.
  std::optional<double> Squares() const;

 private:
  StageOptimizer& optimizer_;
  StreamedUpdate update_;
  size_t next_ = 0;                // block
  std::optional<double> squares_;  // of the undivided sum, so far
};

// Updates of the stages that this worker owns (in stage 0 of ZeRO: of all, its own replica). The
// blocks that an update reads and writes are those that its operation names.
//
// cdp rules: θ_{t+1} is written over θ_{t-1}; dp: over θ_t, in place; so too with predictions, and
// that of θ_{t+2} over that of θ_t. θ_{-1} is θ_0, and the predictions of θ_0 and θ_1 are equal to
// it. Where what travels is not fp32, versions are as it travels, by the same rule, and fp32
// masters are apart. Thread-safety: the engine's mutex guards all calls except PendingUpdate::Step.
class OwnedStages {
 public:
  // All of them must outlive this.
  OwnedStages(const Plan& plan, const std::vector<StageLayout>& layouts, BlockMemory& blocks,
              Streams& streams, const VersionFiles& files)
      : plan_(plan), layouts_(layouts), blocks_(blocks), streams_(streams), files_(files) {}

  // The first version of `stage`, what is read instead of it, and the optimizer's first state, in
  // blocks that are allocated. `options` fills them; without `options.initialize`: zeros.
  absl::Status Initialize(StageId stage, const EngineOptions& options);

  std::unique_ptr<PendingUpdate> BeginUpdate(const Instruction& update, const UpdateTerms& terms,
                                             const std::byte* sum);
  // After its last Step.
  void EndUpdate(const PendingUpdate& update, const Instruction& op);

  // The squared norm of the averaged gradient that made version t + 1 of `stage`, if that update
  // counted squares, and was one of the last three; else 0.
  double GradientSquares(StageId stage, Iteration iteration) const;

  int64_t scratch_bytes() const { return scratch_ ? static_cast<int64_t>(scratch_.size()) : 0; }
  // Of a stage with something to train, owned by this worker. It stays where it is.
  const StageOptimizer& optimizer(StageId stage) const {
    return *stages_.at(stage.value).optimizer;
  }
  // Its optimizer's states, for a collection or a save. DataLoss, if they are not what updates have
  // left. Any thread, without the lock.
  absl::Status LookedAt(StageId stage) const {
    absl::Status as_left = streams_.Check(stage);
    streams_.Forget(stage);
    return as_left;
  }
  // And the versions that a save has read.
  absl::Status LookedAt(const SavedPart& part) const;
  Streams& streams() { return streams_; }
  void Clear() { stages_.clear(); }

 private:
  struct Stage {
    std::unique_ptr<StageOptimizer> optimizer;
    std::map<int, double> squares;  // by iteration
  };

  const Plan& plan_;
  const std::vector<StageLayout>& layouts_;
  BlockMemory& blocks_;
  Streams& streams_;
  const VersionFiles& files_;
  std::map<int, Stage> stages_;  // those that train
  absl::Status InitializeVersions(StageId stage, const EngineOptions& options);

  Buffer scratch_;  // of the update under way: there is one at a time
};

class Updates {
 public:
  // All must outlive this.
  Updates(Executor& executor, BlockMemory& blocks, Sums& sums, const Norms& norms,
          OwnedStages& owned)
      : executor_(executor), blocks_(blocks), sums_(sums), norms_(norms), owned_(owned) {}

  // Begins an update, whose sum is complete and whose norm is known; or the copy of what a
  // collection shows.
  void Start(int64_t op);
  void StartKeep(int64_t op);
  void StartSave(int64_t op);
  void StartCommit(int64_t op);

 private:
  // An update that is started.
  struct Running {
    int64_t number;
    Instruction op;
    const std::byte* sum;
    SlowedUpdate slowed;
    std::unique_ptr<PendingUpdate> update = nullptr;  // from its first block on
  };
  // On the pool: the update's next block. False: it is over, or goes on when its state has come.
  bool DoBlock(const std::shared_ptr<Running>& running);
  void GoOn(std::shared_ptr<Running> running);

  Executor& executor_;
  BlockMemory& blocks_;
  Sums& sums_;
  const Norms& norms_;
  OwnedStages& owned_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_UPDATES_H_
