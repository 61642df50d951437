// PredictedTrace: a plan's simulation as a trace for Perfetto, in the vocabulary of measured ones.
//
//   RZ_ASSIGN_OR_RETURN(std::string json, PredictedTrace(plan, speed));
//
// `speed` in nanoseconds (sharding/cost_profile.h). A pure function.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_

#include <string>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/simulate.h"

namespace ringzero {

// Of the first eight iterations, which show all that repeats. The errors of Simulate.
absl::StatusOr<std::string> PredictedTrace(Plan plan, const SimulationOptions& speed);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_
