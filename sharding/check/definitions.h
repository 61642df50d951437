// Definitions: what docs/schedule.md says, written down a second time.
//
//   const RequiredLabels labels(plan);
//   labels.Of({.worker = 2, .iteration = 5, .lap = 0}, 3);   // what it reads of stage 3
//   RequiredComputing(plan, labels, 2);                      // worker 2's computing
//
// What CheckMeaning (verify.h) holds programs against. It shares no code with schedule.cc,
// collections.cc and program.cc, which write them.
#ifndef RINGZERO_SHARDING_CHECK_DEFINITIONS_H_
#define RINGZERO_SHARDING_CHECK_DEFINITIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"

namespace ringzero {

// A micro-batch by its number in the run: m = N·(t·K + l) + w.
struct MicroBatchPlace {
  int worker;
  int iteration;
  int lap;
  bool operator==(const MicroBatchPlace&) const = default;
};
MicroBatchPlace PlaceOf(const Plan& plan, int64_t micro_batch);
int64_t NumberOf(const Plan& plan, const MicroBatchPlace& place);

// Which labels the update rule gives micro-batches.
class RequiredLabels {
 public:
  // `plan` must outlive this, and must have passed CheckPlan.
  explicit RequiredLabels(const Plan& plan);
  // For stage j.
  int Of(const MicroBatchPlace& place, int j) const;

 private:
  const Plan& plan_;
  std::vector<bool> in_time_;  // by worker and stage: θ_t exists in time for its first lap
};

// A worker's F, B, E, End and Collect of the whole run, in order.
std::vector<Op> RequiredComputing(const Plan& plan, const RequiredLabels& labels, int worker);
// FailedPrecondition unless each worker computes exactly that.
absl::Status CheckComputing(const Plan& plan, const RequiredLabels& labels, const LinkedRing& ring);

// A stagger token: `begins` (F or B, and its stage) of micro-batch m waits for `finished` of
// micro-batch m - 1, or of m - 1 + N.
struct StaggerWait {
  Op finished;
  Op begins;
  bool in_next_lap = false;
};
// In the order of a lap.
std::vector<StaggerWait> StaggerWaits(const Plan& plan);
// Whether micro-batch m has this token: both micro-batches exist, and their worker does nothing
// else between them.
bool HasStaggerToken(const Plan& plan, const StaggerWait& wait, int64_t m);

// In an iteration of dp with several laps, unless memory is lent or every worker has all masters:
// worker 0 gets its copies of later laps from the owners, and the sum of a lap goes to worker 0 by
// way of its owner.
bool LapsEndAtOwners(const Plan& plan, int iteration);

// Whether an iteration is of dp: of the rule, or of its warm-up.
bool IsOfDp(const Plan& plan, int iteration);

// The versions that are evaluated, and those that are collected whole, ascending.
std::vector<int> RequiredEvaluations(const Plan& plan);
std::vector<int> RequiredCollections(const Plan& plan);
// Those that are saved, ascending; and how many parts of each a worker writes.
std::vector<int> RequiredCheckpoints(const Plan& plan);
int RequiredParts(const Plan& plan, int worker);

// --- symbols: what a block holds, in a run on symbols (CheckMeaning in verify.h) -----------------
//
//   const Symbol sum{Symbol::Of::kSum, 2, 4, 8};
//   SymbolText(sum);   // "the sum of micro-batches 4 to 7 of stage 2"

// `first` and `end` are numbers of micro-batches (of the run, or of an
// iteration), of iterations or of versions.
struct Symbol {
  enum class Of : uint8_t {
    kNothing,
    kTheta,       // version `first`, as it travels
    kMasters,     // of version `first`, where they are apart
    kPrediction,  // of version `first`
    kState,       // of the optimizer, after `first` updates
    kGradient,    // of micro-batch `first`
    kBatch,       // statistics of micro-batch `first`
    kStatistics,  // of micro-batches 0 to `end` - 1
    kLosses,      // of micro-batch `end` of iteration (or evaluation) `first`
    kFold,        // of micro-batches 0 to `end` - 1 of iteration (or evaluation) `first`
    kSum,         // of the gradients of micro-batches `first` to `end` - 1
    kSquares,     // of iteration `first`
    kNorm,        // of iteration `first`
    kReceipt,     // of worker `stage`, for `end` parts of version `first`
    kForwardDone,
    kBackwardDone  // of micro-batch `first`
  };
  Of of = Of::kNothing;
  int stage = -1;
  int64_t first = 0;
  int64_t end = 0;
  Copy copy = Copy::kNone;
  bool operator==(const Symbol&) const = default;
};

std::string SymbolText(const Symbol& symbol);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_CHECK_DEFINITIONS_H_
