// Statistics: running statistics on their way around the ring, those of a version that is evaluated
// or collected, and the losses and metrics of micro-batches on theirs.
//
// With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_STATISTICS_H_
#define RINGZERO_ZERO_ENGINE_STATISTICS_H_

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"

namespace ringzero {

// A micro-batch's batch statistics folded into the running ones: running = (1 - blend)·running +
// blend·batch for kBlend (in double, rounded once), running + 1 for kCount. Both in the layout's
// statistics form, layout.statistics_bytes long.
void ApplyStatistics(const StageLayout& layout, const std::byte* batch, std::byte* running);

class Statistics {
 public:
  // Both must outlive this.
  Statistics(Executor& executor, BlockMemory& blocks) : executor_(executor), blocks_(blocks) {}

  // At worker 0: the first running statistics.
  absl::Status Initialize();
  // What a forward has left, for Apply; a missing micro-batch leaves nothing.
  void KeepBatch(const Op& forward, Buffer batch) { batches_[PlaceOf(forward)] = std::move(batch); }
  void StartApply(int64_t op);
  void StartSnapshot(int64_t op);
  // Those of the version that an operation reads, for this worker's own evaluations and
  // collections; empty: there are none.
  SharedBuffer SnapshotOf(const Instruction& op) const;

  // What an End has left, for Fold; with what worker 0 asks for.
  void KeepMetrics(const Op& end, std::vector<double> metrics);
  void StartFold(int64_t op);
  void StartReport(int64_t op);

  // At worker 0: what iteration t is to bring, besides what it brings already.
  void Ask(Iteration t, const RunRequest& request);
  // The plan with all requests, those under way too.
  Plan AskedPlan() const;

  void Clear() { batches_.clear(); }

 private:
  using Place = std::tuple<int, int, int>;  // stage, iteration, lap
  static Place PlaceOf(const Op& op) { return {op.stage.value, op.iteration.value, op.lap.value}; }
  static Place PlaceInFold(const Op& op) {  // evaluation?, iteration, lap
    return {op.copy == Copy::kEvaluation ? 1 : 0, op.iteration.value, op.lap.value};
  }

  Executor& executor_;
  BlockMemory& blocks_;
  std::map<Place, Buffer> batches_;               // until applied
  std::map<Place, std::vector<double>> metrics_;  // until folded
  // At worker 0, by the iteration that brings them; until its fold.
  std::map<Iteration, RunRequest> requests_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_STATISTICS_H_
