// ScheduleChart: who computed what when, and waited for what: rows of workers, as SVG.
//
//   std::string svg = ScheduleChart(records, {.from = begin, .to = end});
//
// A pure function.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_SCHEDULE_CHART_H_
#define RINGZERO_INTEGRATIONS_SIGHT_SCHEDULE_CHART_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/simulate.h"
#include "zero/flight_record.h"

namespace ringzero {

struct ScheduleChartOptions {
  int64_t from = 0;  // by the first record's clock
  int64_t to = 0;
  int64_t width = 0;  // time that the whole width stands for; 0: from..to
};
std::string ScheduleChart(std::span<const FlightRecord> records,
                          const ScheduleChartOptions& options);

// The last iterations, at most `count`, of whose computing all records have everything: the first
// of them and the one behind the last. None: nothing.
std::optional<std::pair<Iteration, Iteration>> LastWhole(std::span<const FlightRecord> records,
                                                         int count);
// From the first begin to the last end of the computing of these iterations, evaluations left out.
std::pair<int64_t, int64_t> TimesOf(std::span<const FlightRecord> records,
                                    std::pair<Iteration, Iteration> iterations);

// The mean time of each stage's forward and backward in the records, for a simulation: nanoseconds.
std::vector<StageTicks> MeasuredTicks(std::span<const FlightRecord> records, int stages);
// Likewise of adds and updates.
std::pair<int64_t, int64_t> MeasuredAddAndUpdate(std::span<const FlightRecord> records);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_SCHEDULE_CHART_H_
