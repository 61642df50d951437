// Slices: from begins and ends to what lasted from when to when, in rows; and means of them.
//
//   for (const Slice& slice : SlicesOf(record.events, Until(record))) { … }
//
// What began before the record's first event is left out; what has not ended lasts until `until`.
// Pure functions.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_
#define RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sharding/event.h"
#include "sharding/simulate.h"
#include "zero/flight_record.h"

namespace ringzero {

struct Slice {
  Track track = Track::kCompute;
  int row = 0;  // within its track; above 0 only where several things go on at once
  Op op;
  uint32_t message = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool ended = true;
};

// By begin. `events`: of one worker, by time.
std::vector<Slice> SlicesOf(std::span<const Event> events, int64_t until);

// The time of the last event; 0 without one.
int64_t Until(const FlightRecord& record);

// The last iterations, at most `count`, of whose computing all records have everything: the first
// of them and the one behind the last. None: nothing.
std::optional<std::pair<Iteration, Iteration>> LastWhole(std::span<const FlightRecord> records,
                                                         int count);
// From the first begin to the last end of the computing of these iterations, evaluations left out.
std::pair<int64_t, int64_t> TimesOf(std::span<const FlightRecord> records,
                                    std::pair<Iteration, Iteration> iterations);

// The mean time of each stage's forward and backward in the records, for a simulation: nanoseconds.
std::vector<StageTicks> MeasuredTicks(std::span<const FlightRecord> records, int stages);
// The mean time of an add and of an update, of all stages.
std::pair<int64_t, int64_t> MeasuredAddAndUpdate(std::span<const FlightRecord> records);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_
