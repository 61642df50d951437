// PlanFigure: a plan as one SVG: the schedule as a grid, and below it what a simulated run sends
// and holds over time.
//
//   RZ_ASSIGN_OR_RETURN(std::string svg, PlanFigure(plan, speed));
//
// `speed` in nanoseconds (sharding/cost_profile.h). Pure.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/simulate.h"

namespace ringzero {

// Iterations that the grid and the panels show.
inline constexpr int kFigureIterations = 2;

// Panels: bytes per second sent on each channel; bytes of copies, sums and versions that all
// workers hold, as if every worker had memory of its own; activations in micro-batches. Of two
// iterations after the first few, evaluations left out. Errors of Simulate.
absl::StatusOr<std::string> PlanFigure(const Plan& plan, const SimulationOptions& speed);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_
