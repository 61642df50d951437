// What a plan will look like, from its simulation. PlanFigure: one SVG with the schedule as a grid,
// and below the grid what is sent and held over time. PredictedTrace: a trace for Perfetto.
//
//   RZ_ASSIGN_OR_RETURN(std::string svg, PlanFigure(plan, speed));
//   RZ_ASSIGN_OR_RETURN(std::string json, PredictedTrace(plan, speed));
//
// `speed` in nanoseconds (sharding/cost_profile.h). Pure functions.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/simulate.h"
#include "zero/flight_record.h"

namespace ringzero {

// Iterations that the grid and the panels show.
inline constexpr int kFigureIterations = 2;

// Panels: bytes per second sent on each channel; bytes of copies, sums and versions that all
// workers hold, as if every worker had memory of its own; activations in micro-batches. Shows
// two iterations after the first few, without evaluations. Errors are Simulate's.
absl::StatusOr<std::string> PlanFigure(const Plan& plan, const SimulationOptions& speed);

// Predictions in the vocabulary of measured runs: of the first iterations, which show all that
// repeats. Errors are Simulate's.
inline constexpr int kPredictedIterations = 8;
absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan,
                                                           const SimulationOptions& speed);
absl::StatusOr<std::string> PredictedTrace(const Plan& plan, const SimulationOptions& speed);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_PLAN_FIGURE_H_
