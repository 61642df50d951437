// From the simulation's events to a trace.
#include "integrations/sight/predicted_trace.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "sharding/predicted_events.h"
#include "zero/flight_record.h"

namespace ringzero {

absl::StatusOr<std::string> PredictedTrace(Plan plan, const SimulationOptions& speed) {
  constexpr int kMost = 8;
  plan.iterations = std::min(plan.iterations, kMost);
  std::vector<int>& versions = plan.collection.versions;
  versions.erase(std::remove_if(versions.begin(), versions.end(),
                                [&](int version) { return version > plan.iterations; }),
                 versions.end());
  RZ_ASSIGN_OR_RETURN(std::vector<std::vector<Event>> events, PredictEvents(plan, speed));
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    FlightRecord record{.worker = WorkerId(w),
                        .workers = plan.workers,
                        .why = "a prediction",
                        .clock = "nanoseconds of the simulation"};
    record.events = std::move(events[static_cast<size_t>(w)]);
    records.push_back(std::move(record));
  }
  return ChromeTrace(records,
                     {.microseconds_per_unit = 1e-3,
                      .note = absl::StrFormat("predicted, the first %d iterations: no clock ran",
                                              plan.iterations)});
}

}  // namespace ringzero
