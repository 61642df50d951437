// FlightRecorder: one worker's last events, always on: three rings of fixed size. TraceStream: all
// its events, into a file.
//
//   FlightRecorder recorder(kFlightEvents);
//   recorder.Record(FlightRecorder::Writer::kComputing, {EventKind::kBegin, op});
//   std::vector<Event> last = recorder.Last();               // any thread, at any time
//
//   FlightRecorder::Cursor cursor;                           // or all of them, bit by bit
//   recorder.ReadNew(cursor, [](const PackedEvent& event) { … });   cursor.lost;
//
// Recording takes a clock's look and four stores: no lock, no allocation, and it never waits for a
// reader. Each ring has one writer at a time; readers (any number, any thread) copy and then look
// whether the writer has come around meanwhile: what it may have touched is left out and counted.
#ifndef RINGZERO_ZERO_FLIGHT_FLIGHT_RECORDER_H_
#define RINGZERO_ZERO_FLIGHT_FLIGHT_RECORDER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "sharding/study/event.h"
#include "zero/flight/flight_record.h"

namespace ringzero {

// 64 KiB: some ten iterations of a worker with 16 stages.
inline constexpr size_t kFlightEvents = 2048;

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
    kMessages,   // the thread that holds the engine's mutex
  };
  static constexpr size_t kWriters = 3;

  // `capacity`: events of each ring; rounded up to a power of two. 0: nothing is recorded.
  explicit FlightRecorder(size_t capacity);

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

 private:
  const bool on_;
  std::array<EventRing, kWriters> rings_;
};

// Of each ring while a run is traced: 1 MiB.
inline constexpr size_t kTraceEvents = 1 << 15;

struct TraceWindow {  // iterations [from, to)
  Iteration from{0};
  Iteration to{INT_MAX};
};

struct TraceStreamOptions {
  std::string folder;  // made if need be; the file is FlightPath(folder, head.worker)
  FlightRecord head;   // worker, workers, why, clock
  const FlightRecorder* recorder = nullptr;  // outlives the stream
  TraceWindow window;
};

// All events of one worker's run into a file, while it runs.
//
//   RZ_ASSIGN_OR_RETURN(auto stream, TraceStream::Create({.folder = "run.parts", .head = head,
//                                                         .recorder = &engine.recorder()}));
//   …                                    // the run
//   RZ_RETURN_IF_ERROR(stream->Finish());   // and its last events
//
// A thread of its own reads the recorder's rings every few milliseconds and writes; no other thread
// waits for it. What was overwritten before it came is counted in the file (`lost`): give the
// recorder rings of kTraceEvents. The file is a flight record without waits
// (zero/flight/flight_record.h). With a window it has the operations of these iterations alone.
class TraceStream {
 public:
  static absl::StatusOr<std::unique_ptr<TraceStream>> Create(TraceStreamOptions options);
  ~TraceStream();

  // To worker 0's clock; before Finish.
  void SetOffset(const std::optional<ClockOffset>& offset) { options_.head.offset = offset; }
  // Reads and writes what is left; the first error of all the writing. Once.
  absl::Status Finish();
  // The window is open for `iterations` from the first one of which there is no event yet; one that
  // is open becomes longer. Any thread.
  void OpenWindow(int iterations);
  // Reads and writes now what has come; any thread, for who cannot wait for the stream's own.
  void Drain();

 private:
  explicit TraceStream(TraceStreamOptions options);
  void Run();
  void Stop();
  void DrainLocked();

  TraceStreamOptions options_;
  std::unique_ptr<OutputFile> file_;  // null after Finish
  FlightRecorder::Cursor cursor_;
  std::vector<PackedEvent> batch_;
  Iteration newest_{-1};  // of all events so far
  absl::Status error_;
  std::mutex drain_mutex_;  // one reads and writes at a time
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_FLIGHT_RECORDER_H_
