// From the simulation's events to a trace.
#include "integrations/sight/predicted_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "sharding/predicted_events.h"

namespace ringzero {

absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan) {
  plan.iterations = std::min(plan.iterations, kPredictedIterations);
  std::vector<int>& versions = plan.collection.versions;
  versions.erase(std::remove_if(versions.begin(), versions.end(),
                                [&](int version) { return version > plan.iterations; }),
                 versions.end());
  RZ_ASSIGN_OR_RETURN(std::vector<std::vector<Event>> events, PredictEvents(plan, {}));
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    FlightRecord record{.worker = WorkerId(w),
                        .workers = plan.workers,
                        .why = "a prediction",
                        .clock = "ticks of the simulation"};
    record.events = std::move(events[static_cast<size_t>(w)]);
    records.push_back(std::move(record));
  }
  return records;
}

absl::StatusOr<std::string> PredictedTrace(const Plan& plan) {
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, PredictedRecords(plan));
  double cost = 0;
  for (const StagePlan& stage : plan.stages) {
    cost += static_cast<double>(stage.forward_cost + stage.backward_cost);
  }
  const double scale = 1000.0 * plan.stage_count() / std::max(cost, 1.0);
  return ChromeTrace(
      records,
      {.microseconds_per_unit = scale,
       .note = absl::StrFormat(
           "predicted, the first %d iterations: no clock ran; %g units of the stages' costs "
           "are drawn as 1 ms; messages, adds and updates take no time",
           std::min(plan.iterations, kPredictedIterations), 1000.0 / scale)});
}

}  // namespace ringzero
