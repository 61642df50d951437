// Schedule: which version a micro-batch reads and from whom each message comes; pure functions of
// Plan.
//
//   const UpdateRule rule(plan);
//   ReadVersion(rule, {w, t, l}, j);   // the label that worker w reads of stage j
//   SourceOf(rule, {w, t, l}, j);      // itself, the previous micro-batch's worker, or the owner
//
// Source: docs/schedule.md; arXiv 2403.08837 section 3 (rules), section 2 (cyclic order).
#ifndef RINGZERO_SHARDING_RULES_SCHEDULE_H_
#define RINGZERO_SHARDING_RULES_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {

// A micro-batch by its place: who computes it, and when.
struct MicroBatch {
  WorkerId worker;
  Iteration iteration;
  Lap lap;
  auto operator<=>(const MicroBatch&) const = default;
};

// The neighbours in micro-batch order; nothing before the first of the run or after the last.
std::optional<MicroBatch> PreviousMicroBatch(const Plan& plan, const MicroBatch& m);
std::optional<MicroBatch> NextMicroBatch(const Plan& plan, const MicroBatch& m);

// A stage's gradient sum of an iteration: worker 0 begins it, the last worker completes it.
inline bool BeginsSum(const MicroBatch& m) { return m.worker.value == 0 && m.lap.value == 0; }
inline WorkerId SumsEndAt(const Plan& plan) { return WorkerId(plan.workers - 1); }

// A plan's update rule, with its sums over costs made once. A plan converts to it. Where it is
// asked often, keep one. The plan must outlive it.
class UpdateRule {
 public:
  UpdateRule(const Plan& plan);  // NOLINT(google-explicit-constructor)
  const Plan& plan() const { return plan_; }
  int64_t before(StageId j) const { return before_[static_cast<size_t>(j.value)]; }
  int64_t total() const { return total_; }  // of a micro-batch

 private:
  const Plan& plan_;
  std::vector<int64_t> before_;
  int64_t total_ = 0;
};

// A plan of a warm-up's iterations alone: they are of dp.
Plan WarmupOf(Plan plan);

// Whether worker w reads θ_t (true) or θ_{t-1} (or what is predicted from it) of stage j in the
// first lap of an iteration, behind a warm-up. Static: integer costs compared by
// cross-multiplication in 128 bits.
// With plan.strict: fresh only where all sums of the iteration before are complete by then.
bool ReadsFresh(const UpdateRule& rule, WorkerId w, StageId j);

// The label that micro-batch m reads of stage j, in its forward and its backward. Only the first
// lap of an iteration may be stale; a stage without a sum has one label, 0.
Version ReadVersion(const UpdateRule& rule, const MicroBatch& m, StageId j);

// The label of stage j after `updates` updates: a stage without a sum (frozen) stays at 0 for ever.
Version VersionAfter(const Plan& plan, StageId j, int updates);

// The labels that the owner of stage j has when the run begins: θ_f, and what is read in its place
// that no update of the run makes: θ_{f-1}, or the predictions p_f and p_{f+1}. θ_{-1} is θ_0. A
// warm-up reads neither.
std::vector<Version> FirstVersions(const Plan& plan, StageId j);

// The labels whose memory the update of iteration t overwrites: θ_{t-1}, or θ_t if it is in place;
// with plan.predict that of the prediction of θ_t, too.
std::vector<Version> OverwrittenVersions(const Plan& plan, Iteration t);

// The labels that a checkpoint of version v has of stage j: those with which a run begins there.
std::vector<Version> SavedVersions(Plan plan, StageId j, Version v);

// Whether anybody reads predictions of stage j, or may after it was saved.
bool IsPredicted(const Plan& plan, StageId j);
// Whether update t makes the prediction that iteration t + 2 reads: a warm-up reads none.
bool MakesPrediction(const Plan& plan, StageId j, Iteration t);

// How a reader comes by its copy of a stage.
struct CopySource {
  enum class How { kOwn, kRelay, kInject };
  How how;
  WorkerId from;
};
CopySource SourceOf(const UpdateRule& rule, const MicroBatch& m, StageId j);
// Whether the last worker parks the sum of stage j between two laps of iteration t at its owner
// (kRetire with the lap that ends), who sends it to worker 0. (Plan::ends_laps_at_owners. Sums of
// the last worker's own stages, and of worker 0's, go straight there.)
bool IsParked(const Plan& plan, Iteration t, StageId j);
// Where copies are held (plan.holds_copies): whether micro-batch m, or the evaluation at worker w
// in iteration t, is the first on its worker to read its version of stage j, or the last. What has
// been read before comes from nowhere.
bool IsFirstRead(const UpdateRule& rule, const MicroBatch& m, StageId j);
bool IsLastRead(const UpdateRule& rule, const MicroBatch& m, StageId j);
bool IsFirstReadOfEvaluation(const UpdateRule& rule, WorkerId w, Iteration t, StageId j);
bool IsLastReadOfEvaluation(const UpdateRule& rule, WorkerId w, Iteration t, StageId j);
// The last operation of a lap that reads stage j: kBackward or kForward, and its stage.
std::pair<OpKind, StageId> LastReadOfLap(const Plan& plan, StageId j);

// The same for an evaluation lap. Every lap starts anew at worker 0: were its copies relayed by the
// last worker, worker 0 would wait in its second lap for a worker that may still be training, and
// that one, through the slots of its relays, for worker 0.
CopySource EvaluationSourceOf(const Plan& plan, WorkerId w, StageId j);

// Whether the stage's backward needs a message of its own (retained stages keep the forward copy,
// and so do all where copies are held).
bool HasBackwardCopy(const Plan& plan, StageId j);

// Versions that are evaluated: every, 2·every, …, iterations, and what was asked for; from the
// run's first version on.
bool IsEvaluated(const Plan& plan, Version v);

// Whether plan.collection.worker is shown version v whole: only versions that the run has made.
bool IsCollected(const Plan& plan, Version v);

// Whether version v is saved: only versions that the run has made.
bool IsSaved(const Plan& plan, Version v);
// Whether worker w writes anything of a version that is saved: stages that it owns, or, the last
// worker, running statistics.
bool Saves(const Plan& plan, WorkerId w);

// What one worker is shown of a version, stage by stage and part by part.
struct Collection {
  WorkerId worker;
  // Parameters and running statistics alone, as worker 0 is shown them of the last version; or
  // averaged gradients and optimizer state, too.
  bool parameters_only;
};

// Who has the stage's masters, sums and states for `worker`: the owner, or itself if it has them.
WorkerId KeepsFor(const Plan& plan, WorkerId worker, StageId j);

// At most two, of different workers.
std::vector<Collection> CollectionsOf(const Plan& plan, Version v);

// To whom the last worker sends its snapshot of version v, ascending. An evaluation passes it on
// from worker 0 to all others.
std::vector<WorkerId> SnapshotReceivers(const Plan& plan, Version v);

// The same worker's next lap; nothing if the run is over, if an evaluation or a collection comes
// between them, or if it is the next iteration of dp, which waits for all workers.
std::optional<MicroBatch> FollowingLap(const Plan& plan, const MicroBatch& m);

// With stagger a micro-batch begins operation `before` of its lap (0..2S-1: F0 … F(S-1) B(S-1) …
// B0) when the worker of the previous micro-batch has finished operation `after`, of that
// micro-batch or of its FollowingLap: the last that ends T/N or less after `before` begins, by cost
// (at least operation 0). Ascending by `before`; one that would wait for what the one before it has
// waited for has no token. So neighbours keep T/N apart to within one operation, also the last
// worker and the first. By cost each edge leads forward in time, as those of the versions do
// (ReadsFresh): no cycle.
struct StaggerToken {
  int after = 0;
  bool in_following_lap = false;
  int before = 0;
  bool operator==(const StaggerToken&) const = default;
};
std::vector<StaggerToken> StaggerTokens(const Plan& plan);

// The least window worth trying: a stage's copy and sum for each stage that a worker owns, and so
// many copies as stagger lets a worker be operations ahead of the one that it passes to.
int LeastWindow(const Plan& plan);

// Share of (worker, stage) pairs whose gradients, in a first lap, are of an older version than
// their update starts from: θ_{t-1} for that of iteration t (frozen stages have one version).
double StaleShare(const Plan& plan);

// Whom worker 0 sends the norm of iteration t: who updates with it, and where overflows are
// skipped, everybody. Nobody where all have it (stage 0 of ZeRO).
std::vector<WorkerId> NormReceivers(const Plan& plan, Iteration t);

// Bytes on the wire per iteration, whole ring, in a steady iteration behind the warm-up: closed
// forms of docs/schedule.md.
struct WireBytes {
  int64_t parameters = 0;
  int64_t sums = 0;
};
WireBytes SteadyWireBytes(const Plan& plan);

// A plan whose run is so short that Verify is fast, and in which everything that differs between
// iterations still happens: the first, later ones, an evaluation, the last, and the closing one;
// and all that differs between laps.
Plan ShortenedPlan(const Plan& plan);

// --- samples: how many each micro-batch of training has, and what it weighs in its update
// ----------
//
//   SamplesOf(plan, Iteration(7), 3);   // of micro-batch 3 = l·N + w: 0: it is missing
//
// An epoch's samples go to iterations of N·K·b, b those of a full micro-batch. Of its last
// iteration the micro-batches are filled in order; one may be smaller, and those after it are
// missing. A missing micro-batch keeps its number and its place in every program: its worker takes
// and passes on copies, sums, statistics and metrics, and adds nothing. Where the plan does not
// count samples (plan.samples.per_epoch == 0) all are full.

// ceil(per_epoch / (N·K·b)); 0 where the plan does not count.
int64_t IterationsPerEpoch(const Plan& plan);

// The number within the iteration, l·N + w, of a worker's micro-batch.
inline int MicroBatchOf(const Plan& plan, WorkerId worker, Lap lap) {
  return lap.value * plan.workers + worker.value;
}

// `micro_batch`: its number within the iteration.
int64_t SamplesOf(const Plan& plan, Iteration iteration, int micro_batch);

// Of all iterations before this one.
int64_t SamplesBefore(const Plan& plan, Iteration iteration);

// What the gradient of a micro-batch's mean loss is multiplied by before it is added, n/b, and what
// the update divides the sum by, Σn/b: together the gradient of the mean over all samples. Of full
// ones 1 and N·K.
double WeightOf(const Plan& plan, Iteration iteration, int micro_batch);
double DivisorOf(const Plan& plan, Iteration iteration);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_RULES_SCHEDULE_H_
