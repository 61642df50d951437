// Pairs ends with begins.
#include "integrations/sight/slices.h"

#include <algorithm>
#include <array>

namespace ringzero {

std::vector<Slice> SlicesOf(std::span<const Event> events, int64_t until) {
  std::vector<Slice> slices;
  std::array<std::vector<size_t>, kTrackCount> open;  // numbers of slices that have not ended
  for (const Event& event : events) {
    const Track track = TrackOf(event);
    std::vector<size_t>& now = open[static_cast<size_t>(track)];
    if (event.kind == EventKind::kEnd || event.kind == EventKind::kWaited) {
      const auto begun = std::find_if(now.begin(), now.end(), [&](size_t i) {
        return slices[i].op == event.op && slices[i].message == event.message;
      });
      if (begun == now.end()) continue;
      slices[*begun].end = event.time;
      slices[*begun].ended = true;
      now.erase(begun);
      continue;
    }
    Slice slice{.track = track,
                .op = event.op,
                .message = event.message,
                .begin = event.time,
                .end = std::max(until, event.time),
                .ended = false};
    // The lowest row that nobody is in.
    while (
        std::any_of(now.begin(), now.end(), [&](size_t i) { return slices[i].row == slice.row; })) {
      ++slice.row;
    }
    now.push_back(slices.size());
    slices.push_back(slice);
  }
  return slices;
}

}  // namespace ringzero
