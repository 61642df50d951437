// FlightRecorder: one worker's last events, always on: three rings of fixed size.
//
//   FlightRecorder recorder({.capacity = 2048});
//   recorder.Record(FlightRecorder::Writer::kComputing, {EventKind::kBegin, op});
//   std::vector<Event> last = recorder.Last();               // any thread, at any time
//
//   FlightRecorder::Cursor cursor;                           // or all of them, bit by bit
//   recorder.ReadNew(cursor, [](const PackedEvent& event) { … });   cursor.lost;
//
// Recording takes a clock's look and four stores: no lock, no allocation, and it never waits for a
// reader. Each ring has one writer at a time; readers (any number, any thread) copy and then look
// whether the writer has come around meanwhile: what it may have touched is left out and counted.
#ifndef RINGZERO_ZERO_FLIGHT_RECORDER_H_
#define RINGZERO_ZERO_FLIGHT_RECORDER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sharding/event.h"

namespace ringzero {

// 64 KiB: some ten iterations of a worker with 16 stages.
inline constexpr size_t kFlightEvents = 2048;

struct FlightRecorderOptions {
  // Events of each ring; rounded up to a power of two. 0: nothing is recorded.
  size_t capacity = kFlightEvents;
};

// One ring. Push: one thread at a time.
class EventRing {
 public:
  explicit EventRing(size_t capacity);

  void Push(const PackedEvent& words) {
    const uint64_t number = written_.load(std::memory_order_relaxed);
    std::atomic<uint64_t>* slot = &slots_[(number & mask_) * kWords];
    // Release, so that who sees one of these words sees that the ring has come so far.
    for (size_t i = 0; i < kWords; ++i) slot[i].store(words[i], std::memory_order_release);
    written_.store(number + 1, std::memory_order_release);
  }

  // Appends events from number `from` on, and returns the number of the next one. Those that are
  // gone are counted in `lost`.
  uint64_t Read(uint64_t from, std::vector<PackedEvent>& to, uint64_t& lost) const;
  uint64_t written() const { return written_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kWords = std::tuple_size_v<PackedEvent>;
  const uint64_t mask_;
  std::vector<std::atomic<uint64_t>> slots_;
  std::atomic<uint64_t> written_{0};
};

class FlightRecorder {
 public:
  enum class Writer : uint8_t {
    kComputing,  // the computing thread
    kPool,       // the pool's
    kMessages,   // whoever holds the engine's mutex
  };
  static constexpr size_t kWriters = 3;

  explicit FlightRecorder(const FlightRecorderOptions& options);

  struct Entry {
    EventKind kind;
    const Op& op;
    uint32_t message = 0;
  };
  void Record(Writer writer, const Entry& entry) {
    if (!on_) return;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const int64_t time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    rings_[static_cast<size_t>(writer)].Push(Pack({time, entry.kind, entry.op, entry.message}));
  }

  struct Cursor {
    std::array<uint64_t, kWriters> next = {};
    uint64_t lost = 0;  // events that were overwritten before they were read
  };
  // What has come since the last call with this cursor, by ring.
  void ReadNew(Cursor& cursor, const std::function<void(const PackedEvent&)>& take) const;
  // What the rings hold, by time.
  std::vector<Event> Last() const;
  uint64_t recorded() const;  // since the start

 private:
  const bool on_;
  std::array<EventRing, kWriters> rings_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_RECORDER_H_
