// TraceStream: all events of one worker's run into a file, while it runs.
//
//   RZ_ASSIGN_OR_RETURN(auto stream, TraceStream::Create({.folder = "run.parts", .head = head,
//                                                         .recorder = &engine.recorder()}));
//   …                                    // the run
//   RZ_RETURN_IF_ERROR(stream->Finish());   // and its last events
//
// A thread of its own reads the recorder's rings every few milliseconds and writes; nobody waits
// for it. What was overwritten before it came is counted in the file (`lost`): give the recorder
// rings of kTraceEvents. The file is a flight record without waits (zero/flight_record.h). With a
// window it has the operations of these iterations alone.
#ifndef RINGZERO_ZERO_TRACE_STREAM_H_
#define RINGZERO_ZERO_TRACE_STREAM_H_

#include <climits>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "zero/flight_record.h"
#include "zero/flight_recorder.h"

namespace ringzero {

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

#endif  // RINGZERO_ZERO_TRACE_STREAM_H_
