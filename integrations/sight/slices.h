// Slices: from begins and ends to what lasted from when to when, in rows.
//
//   for (const Slice& slice : SlicesOf(record.events, record.time_ns)) { … }
//
// What began before the record's first event is left out; what has not ended lasts until `until`. A
// pure function.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_
#define RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "sharding/event.h"

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

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_SLICES_H_
