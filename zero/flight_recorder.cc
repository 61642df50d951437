// Reading the rings while they are written.
#include "zero/flight_recorder.h"

#include <algorithm>
#include <bit>

namespace ringzero {

EventRing::EventRing(size_t capacity)
    : mask_(std::bit_ceil(std::max<size_t>(capacity, 2)) - 1), slots_((mask_ + 1) * kWords) {}

uint64_t EventRing::Read(uint64_t from, std::vector<PackedEvent>& to, uint64_t& lost) const {
  const uint64_t capacity = mask_ + 1;
  const uint64_t end = written();
  const uint64_t begin = std::max(from, end - std::min(end, capacity));
  const size_t had = to.size();
  for (uint64_t number = begin; number < end; ++number) {
    const std::atomic<uint64_t>* slot = &slots_[(number & mask_) * kWords];
    PackedEvent words;
    for (size_t i = 0; i < kWords; ++i) words[i] = slot[i].load(std::memory_order_acquire);
    to.push_back(words);
  }
  // The writer is at event `now`, maybe half way: in the slot of now - capacity.
  const uint64_t now = written();
  const uint64_t safe = now < capacity ? 0 : now - capacity + 1;
  const uint64_t spoilt = std::min(end, std::max(begin, safe)) - begin;
  to.erase(to.begin() + static_cast<ptrdiff_t>(had),
           to.begin() + static_cast<ptrdiff_t>(had + spoilt));
  lost += begin - from + spoilt;
  return end;
}

FlightRecorder::FlightRecorder(const FlightRecorderOptions& options)
    : on_(options.capacity > 0),
      rings_{EventRing(options.capacity), EventRing(options.capacity),
             EventRing(options.capacity)} {}

void FlightRecorder::ReadNew(Cursor& cursor,
                             const std::function<void(const PackedEvent&)>& take) const {
  std::vector<PackedEvent> events;
  for (size_t i = 0; i < kWriters; ++i) {
    events.clear();
    cursor.next[i] = rings_[i].Read(cursor.next[i], events, cursor.lost);
    for (const PackedEvent& event : events) take(event);
  }
}

std::vector<Event> FlightRecorder::Last() const {
  std::vector<Event> last;
  Cursor cursor;
  ReadNew(cursor, [&](const PackedEvent& words) {
    if (absl::StatusOr<Event> event = Unpack(words); event.ok()) last.push_back(*event);
  });
  std::stable_sort(last.begin(), last.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  return last;
}

uint64_t FlightRecorder::recorded() const {
  uint64_t sum = 0;
  for (const EventRing& ring : rings_) sum += ring.written();
  return sum;
}

}  // namespace ringzero
