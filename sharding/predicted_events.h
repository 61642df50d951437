// PredictEvents: the events that Simulate expects, as the engine would record them.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<std::vector<Event>> events, PredictEvents(plan, {}));
//   events[2];    // worker 2's, by time; times are ticks
//
// Pure and deterministic.
#ifndef RINGZERO_SHARDING_PREDICTED_EVENTS_H_
#define RINGZERO_SHARDING_PREDICTED_EVENTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "sharding/event.h"
#include "sharding/plan.h"
#include "sharding/simulate.h"

namespace ringzero {

// Of the whole run, by worker. The errors of Simulate.
absl::StatusOr<std::vector<std::vector<Event>>> PredictEvents(const Plan& plan,
                                                              const SimulationOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PREDICTED_EVENTS_H_
