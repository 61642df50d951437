// Pairs ends with begins.
#include "integrations/sight/slices.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>

namespace ringzero {
namespace {

// What has begun and not ended on one track. All that it does takes the logarithm of how many those
// are: a file may say that everything began and nothing ended.
class OpenSlices {
 public:
  // The row in which slice number `slice` lies.
  int Begin(const Event& event, size_t slice) {
    open_[KeyOf(event)].push_back(slice);
    if (free_rows_.empty()) return rows_++;
    return free_rows_.extract(free_rows_.begin()).value();
  }

  // The number of the slice that ends, the first of several alike; none had begun: nothing.
  std::optional<size_t> End(const Event& event) {
    const auto found = open_.find(KeyOf(event));
    if (found == open_.end()) return std::nullopt;
    const size_t slice = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) open_.erase(found);
    return slice;
  }
  void FreeRow(int row) { free_rows_.insert(row); }

 private:
  // The operation and the message, in comparable form.
  static PackedEvent KeyOf(const Event& event) {
    return Pack({.kind = EventKind::kBegin, .op = event.op, .message = event.message});
  }

  std::map<PackedEvent, std::deque<size_t>> open_;
  std::set<int> free_rows_;
  int rows_ = 0;
};

}  // namespace

std::vector<Slice> SlicesOf(std::span<const Event> events, int64_t until) {
  std::vector<Slice> slices;
  std::array<OpenSlices, kTrackCount> open;
  for (const Event& event : events) {
    const Track track = TrackOf(event);
    OpenSlices& now = open[static_cast<size_t>(track)];
    if (event.kind == EventKind::kEnd || event.kind == EventKind::kWaited) {
      const std::optional<size_t> begun = now.End(event);
      if (!begun.has_value()) continue;
      slices[*begun].end = event.time;
      slices[*begun].ended = true;
      now.FreeRow(slices[*begun].row);
      continue;
    }
    const Slice slice{.track = track,
                      .row = now.Begin(event, slices.size()),
                      .op = event.op,
                      .message = event.message,
                      .begin = event.time,
                      .end = std::max(until, event.time),
                      .ended = false};
    slices.push_back(slice);
  }
  return slices;
}

}  // namespace ringzero
