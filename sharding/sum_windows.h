// Sum windows: which micro-batches an update of a stage sums, and where its sum begins and ends.
//
//   UpdateOf(plan, m, j)       // the iteration whose update of stage j the gradient of m goes into
//   SumsEndAt(plan, j)         // whose micro-batch completes it
//
// Micro-batches are numbered m = N·K·t + N·l + w. Update u of stage j sums those with
// N·K·(u-1) + c_j < m <= N·K·u + c_j. c_j = N·K - 1 are the micro-batches of iteration u. Balanced
// windows (K = 1) have c_j = j: the sum of stage j begins at worker j + 1 in the iteration before
// and ends at worker j, which owns the stage. The run's first update has those up to c_j only, and
// what comes after the last complete window goes into nothing.
//
// Source: docs/decisions/0035.
#ifndef RINGZERO_SHARDING_SUM_WINDOWS_H_
#define RINGZERO_SHARDING_SUM_WINDOWS_H_

#include <optional>

#include "base/ids.h"
#include "sharding/plan.h"
#include "sharding/schedule.h"

namespace ringzero {

// The update of stage j, by its iteration, that micro-batch m contributes to in a run without end.
Iteration UpdateInEndlessRun(const Plan& plan, const MicroBatch& m, StageId j);

// The same; nothing where the run ends before it.
std::optional<Iteration> UpdateOf(const Plan& plan, const MicroBatch& m, StageId j);

// Whether m, which contributes to an update of stage j, is the first that does, or the last.
bool BeginsSum(const Plan& plan, const MicroBatch& m, StageId j);
bool CompletesSum(const Plan& plan, const MicroBatch& m, StageId j);

// Whether m is its worker's last contribution to an update: when that is handed on, the worker has
// let go of what the update overwrites.
bool IsLastPart(const Plan& plan, const MicroBatch& m);

// The worker whose micro-batches complete the sums of stage j, and whether worker w's ever begin
// one.
WorkerId SumsEndAt(const Plan& plan, StageId j);
bool MayBeginSum(const Plan& plan, WorkerId w, StageId j);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_SUM_WINDOWS_H_
