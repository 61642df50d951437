// PredictedTrace: a plan's simulation as a trace for Perfetto, in the vocabulary of measured ones.
//
//   RZ_ASSIGN_OR_RETURN(std::string json, PredictedTrace(plan));
//
// Pure functions.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "zero/flight_record.h"

namespace ringzero {

// The first iterations of a long run show all that repeats.
inline constexpr int kPredictedIterations = 8;

// Records with the simulation's events, times in ticks of the stages' costs; messages, adds and
// updates take no time. The errors of Simulate.
absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan);

// Drawn so that the mean forward and backward of one micro-batch takes as many milliseconds as
// there are stages.
absl::StatusOr<std::string> PredictedTrace(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_PREDICTED_TRACE_H_
