// OwnedStages: the versions of the stages that this worker owns (in stage 0 of ZeRO: of all, its
// own replica), two buffers each at most (three with predictions), and their optimizer state.
//
//   SharedBuffer v = owned.Get(stage, Version(3));
//   RZ_ASSIGN_OR_RETURN(auto update, owned.BeginUpdate(stage, Iteration(3), std::move(sum)));
//   while (update.Step()) {}
//   owned.Publish(std::move(update)).Reset();   // version 4 exists, the sum's memory is free
//
// cdp rules: θ_{t+1} is written over θ_{t-1}; dp: over θ_t, in place; so too with predictions, and
// that of θ_{t+2} over that of θ_t. Always only when this worker is the buffer's only holder.
// θ_{-1} is θ_0, and the predictions of θ_0 and θ_1 are equal to it. Thread-safety: the engine's
// mutex guards all calls except PendingUpdate::Step.
//
// Where what travels is not fp32, versions are as it travels, by the same rule, and fp32 masters
// are apart: of the newest version, updated in place; of both where a collection may still read the
// older one (Plan::has_two_masters).
#ifndef RINGZERO_ZERO_OWNED_STAGES_H_
#define RINGZERO_ZERO_OWNED_STAGES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "sharding/plan.h"
#include "zero/layout.h"
#include "zero/optimizer.h"

namespace ringzero {

// What an update needs to know besides its sum.
struct UpdateTerms {
  double loss_scale = 1;
  float clip = 1;      // of the gradient's norm (gradient_norm.h)
  int64_t number = 0;  // updates made before: what the rate depends on
  // Nothing is updated: θ_{t+1} is θ_t, and the optimizer's state stays (no count either).
  bool skipped = false;
};

// An update under way: reads θ_t and the sum, writes `out`.
class PendingUpdate {
 public:
  struct Memory {
    SharedBuffer theta;            // masters; empty: in place
    SharedBuffer sum;              // of other workers, too, where nothing is sharded
    Buffer out;                    // masters
    Buffer wire;                   // the version that travels, where masters are apart
    Buffer predicted;              // empty: nothing is
    std::byte* scratch = nullptr;  // the optimizer's scratch_bytes(), of no other update under way
  };
  PendingUpdate(StageId stage, Iteration iteration, const StageLayout& layout,
                StageOptimizer* optimizer, double divisor, const UpdateTerms& terms, Memory memory);
  // Sums the squares of the gradients, too, each block before it is updated with.
  void CountSquares() { counts_squares_ = true; }
  // One block; false when that was the last.
  bool Step();

 private:
  friend class OwnedStages;
  void CarryOver();
  StageId stage_;
  Iteration iteration_;
  const StageLayout& layout_;
  StageOptimizer* optimizer_;
  double divisor_;
  UpdateTerms terms_;
  Memory memory_;
  size_t next_block_ = 0;
  bool counts_squares_ = false;
  double squares_ = 0;  // of the undivided sum, so far
};

class OwnedStages {
 public:
  // Parameters of a stage in memory that travels.
  using Allocate = std::function<absl::StatusOr<Buffer>(size_t bytes)>;

  OwnedStages(const Plan& plan, const std::vector<StageLayout>& layouts,
              const OptimizerOptions& optimizer);

  // θ_0 of `stage`, and memory for its second version.
  absl::Status Initialize(StageId stage, const Allocate& allocate,
                          const std::function<absl::Status(StageId, std::byte*)>& fill);
  SharedBuffer Get(StageId stage, Version version) const;
  // In fp32.
  SharedBuffer Masters(StageId stage, Version version) const;

  // Whether this worker is the only holder of the memory that the update will overwrite. The plan
  // says that nobody reads it any more; a handle on its way out elsewhere may still be counted for
  // a moment.
  bool MayOverwrite(StageId stage, Iteration iteration) const;
  // FailedPrecondition unless MayOverwrite.
  absl::StatusOr<std::unique_ptr<PendingUpdate>> BeginUpdate(StageId stage, Iteration iteration,
                                                             const UpdateTerms& terms,
                                                             SharedBuffer sum);
  // Gives the sum back, which it has read.
  SharedBuffer Publish(std::unique_ptr<PendingUpdate> update);

  // The squared norm of the averaged gradient that made version t + 1 of `stage`, if that update
  // counted squares, and was one of the last three; else 0.
  double GradientSquares(StageId stage, Iteration iteration) const;

  int64_t optimizer_state_bytes() const;
  int64_t scratch_bytes() const { return scratch_ ? static_cast<int64_t>(scratch_.size()) : 0; }
  // Of parameters, as allocated: masters of one version of each stage, and all else.
  int64_t master_bytes() const { return master_bytes_; }
  int64_t version_bytes() const { return version_bytes_; }
  // Of a stage with something to train, owned by this worker. It stays where it is.
  const StageOptimizer& optimizer(StageId stage) const;
  void Clear();

 private:
  struct Stage {
    std::map<int, SharedBuffer> versions;
    std::map<int, SharedBuffer> masters;  // where they are apart
    Buffer spare, spare_masters;          // cdp rules, before the first update
    // By the t of the θ_t predicted; those of θ_0 and θ_1 are one, as 1.
    std::map<int, SharedBuffer> predictions;
    Buffer spare_prediction;
    std::unique_ptr<StageOptimizer> optimizer;
    std::map<int, double> squares;  // by iteration
  };

  static SharedBuffer Find(const std::map<int, SharedBuffer>& buffers, StageId stage,
                           Version version);
  // The masters that the update overwrites.
  int OverwrittenMasters(Iteration iteration) const;

  const Plan& plan_;
  const std::vector<StageLayout>& layouts_;
  const OptimizerOptions optimizer_;
  std::map<int, Stage> stages_;
  Buffer scratch_;  // of the update under way: there is one at a time
  int64_t master_bytes_ = 0;
  int64_t version_bytes_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OWNED_STAGES_H_
