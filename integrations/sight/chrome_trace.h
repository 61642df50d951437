// Slices: what lasted from when to when, in rows, made of the begins and ends of events; means of
// these. ChromeTrace: slices as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<FlightRecord> records, ReadFlightFolder("run.parts"));
//   for (const Slice& slice : SlicesOf(records[0].events)) { … }
//   RZ_RETURN_IF_ERROR(WriteTrace("trace.json.gz", ChromeTrace(records)));
//
// In the JSON a worker is a process, its tracks (sharding/study/event.h) are threads, operations
// are slices, and a flow goes from each send to its receive. Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#ifndef RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/study/event.h"
#include "sharding/study/simulate.h"
#include "zero/flight/flight_record.h"

namespace ringzero {

struct Slice {
  Track track = Track::kCompute;
  int row = 0;  // within its track; above 0 only where several things go on at once
  Op op;
  uint32_t message = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool ended = false;
};

// Sorted by begin. `events`: of one worker, sorted by time. A slice that began before the first
// event is left out; a slice that has not ended lasts until the last event.
std::vector<Slice> SlicesOf(std::span<const Event> events);

// The last iterations, at most `count`, whose whole computing is in all records. Returns the first
// of these iterations and the one after the last; nothing if there are none.
std::optional<std::pair<Iteration, Iteration>> LastWhole(std::span<const FlightRecord> records,
                                                         int count);
// The first begin and the last end of computing in these iterations, without evaluations.
std::pair<int64_t, int64_t> TimesOf(std::span<const FlightRecord> records,
                                    std::pair<Iteration, Iteration> iterations);

// Mean times in the records, in nanoseconds: of each stage's forward and backward; of an add and
// of an update, over all stages.
SimulationOptions MeasuredSpeed(std::span<const FlightRecord> records, int stages);

// `records`: at most one per worker, times in nanoseconds. The trace names workers whose clocks are
// not aligned. `note`: for a person.
std::string ChromeTrace(std::span<const FlightRecord> records, const std::string& note = "");

// Predictions in the vocabulary of measured runs: of the first iterations, which show all that
// repeats. `speed` in nanoseconds (sharding/study/cost_profile.h). Errors are Simulate's.
inline constexpr int kPredictedIterations = 8;
absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan,
                                                           const SimulationOptions& speed);
absl::StatusOr<std::string> PredictedTrace(const Plan& plan, const SimulationOptions& speed);

// Writes a whole file (base/files.h), packed by gzip if the name ends in .gz: Perfetto and
// chrome://tracing open .gz, too. PermissionDenied names the file.
absl::Status WriteTrace(const std::string& path, const std::string& json);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_
