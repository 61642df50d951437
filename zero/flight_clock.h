// Times of several workers, by one clock.
//
//   if (const std::optional<int64_t> offset = OffsetTo(records[0], record)) {
//     by_the_first_ones_clock = record.time_ns + *offset;
//   }
//
// A pure function.
#ifndef RINGZERO_ZERO_FLIGHT_CLOCK_H_
#define RINGZERO_ZERO_FLIGHT_CLOCK_H_

#include <cstdint>
#include <optional>

#include "zero/flight_record.h"

namespace ringzero {

// Nanoseconds to add to a time of `record` to come to the clock of `reference`: 0 where the clocks
// are one, the difference of what was measured, or nothing where that is not known.
std::optional<int64_t> OffsetTo(const FlightRecord& reference, const FlightRecord& record);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_CLOCK_H_
