// Render: a plan as something to look at: a grid of workers and ticks, a figure, a description.
//
//   std::cout << RenderText(plan, 2);      // two iterations, one column a tick
//   file << RenderSvg(plan, 2);            // the same as a self-contained figure
//   RZ_ASSIGN_OR_RETURN(std::string text, DescribePlan(plan, proof, run));   // of `ringzero plan`
//
// The grid is the picture of docs/schedule.md in which every forward and backward of a stage takes
// one tick; the engine has no such clock. Pure. Plans must have passed CheckPlan.
#ifndef RINGZERO_SHARDING_STUDY_RENDER_H_
#define RINGZERO_SHARDING_STUDY_RENDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/check/verify.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/study/simulate.h"

namespace ringzero {

// One forward or backward in the picture.
struct GridCell {
  int worker = 0;
  int tick = 0;
  Op op;  // kForward or kBackward
  bool is_fresh() const { return op.version.value == op.iteration.value; }
};

// Worker w is floor(w·T/N) ticks late (T ticks a lap: 2S, less for a frozen prefix), which is 2k·w
// for S = k·N; with dp all begin together. By worker, ascending ticks.
std::vector<GridCell> LockstepGrid(const Plan& plan, int iterations);

// "F2": forward of stage 2 with the newest version, θ_t of iteration t; "f2": with θ_{t-1}. B and b
// likewise. "|" begins an iteration, ":" a further lap. At most 120 columns wide (with more than
// one tick in a row): later ticks stand in further blocks below, each with its own line of ticks.
std::string RenderText(const Plan& plan, int iterations);

// Forwards blue, backwards orange, darker with the stage; hatched where θ_{t-1} is read; and the
// way of one stage's gradient sum through the first iteration to its owner.
std::string RenderSvg(const Plan& plan, int iterations);

// "341.0 MiB".
std::string SizeText(double bytes);

// Rule, shape, stages, owners, stale share, bytes on the wire, simulated time and activations,
// warnings: of a plan that was verified, and of its ShortRun. InvalidArgument if the proof is of
// another plan.
absl::StatusOr<std::string> DescribePlan(const Plan& plan, const PlanProof& proof,
                                         const ShortRun& run);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_RENDER_H_
