// Clocks that are one, and clocks that were compared with worker 0's.
#include "zero/flight_clock.h"

namespace ringzero {
namespace {

std::optional<int64_t> OffsetToWorkerZero(const FlightRecord& record) {
  if (record.worker.value == 0) return 0;
  if (!record.offset.has_value()) return std::nullopt;
  return record.offset->offset_ns;
}

}  // namespace

std::optional<int64_t> OffsetTo(const FlightRecord& reference, const FlightRecord& record) {
  if (record.worker == reference.worker) return 0;
  if (record.clock == reference.clock && record.clock != kUnknownClock) return 0;
  const std::optional<int64_t> from = OffsetToWorkerZero(record);
  const std::optional<int64_t> to = OffsetToWorkerZero(reference);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return *from - *to;
}

}  // namespace ringzero
