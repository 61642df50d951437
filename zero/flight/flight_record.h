// FlightRecord: what one worker's flight recorder says at one moment, as a file.
//
//   RZ_RETURN_IF_ERROR(WriteFlightFile("flight", record));          // flight/worker-2.flight
//   RZ_ASSIGN_OR_RETURN(std::vector<FlightRecord> all, ReadFlightFolder("flight"));
//   std::fputs(BlameFlights(all).c_str(), stdout);                  // who waits for whom
//
// A file is a head of lines ("worker 2 of 4") and the events behind it, 32 bytes each
// (docs/sight.md). A trace's file is the same, with all events of a run. Thread-safe.
#ifndef RINGZERO_ZERO_FLIGHT_FLIGHT_RECORD_H_
#define RINGZERO_ZERO_FLIGHT_FLIGHT_RECORD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/program/program.h"
#include "sharding/study/event.h"
#include "zero/flight/blame.h"

namespace ringzero {

// Between two clocks: by the question with the shortest way there and back.
struct ClockOffset {
  int64_t offset_ns = 0;
  int64_t within_ns = 0;  // it is not wrong by more: half of that way
};

// An operation that others may wait for and that is not done: a send, or an update.
struct OpenOperation {
  Op op;
  BlameAnswer why;
};

struct FlightRecord {
  WorkerId worker{0};
  int workers = 1;
  std::string why;      // it was written
  int64_t time_ns = 0;  // when, by the worker's steady clock
  std::string clock;    // whose steady clock that is: equal for all processes of one boot
  // What to add to come to worker 0's clock, if that was measured.
  std::optional<ClockOffset> offset;
  absl::Status error;      // that ended the run here
  ProgramPart appended;    // the first part of the program that the engine did not know yet
  uint64_t lost = 0;       // events that are not here though they should be
  bool has_waits = false;  // what follows was read; false in a trace, or with a lock that was held
  BlameAnswer now;         // what this worker did or waited for
  // Since when, by the same clock; time_ns if its program was done.
  int64_t since_ns = 0;
  std::vector<OpenOperation> open;
  std::vector<Undelivered> undelivered;
  std::vector<Event> events;  // by time
};

// Of a clock that /proc gives no name: equal to no other.
inline constexpr char kUnknownClock[] = "unknown";
// The name of this machine's steady clock, "boot 6f1c…", or kUnknownClock.
std::string SteadyClockName();

// Nanoseconds to add to a time of `record` to come to the clock of `reference`: 0 where the clocks
// are one, the difference of what was measured, or nothing where that is not known.
std::optional<int64_t> OffsetTo(const FlightRecord& reference, const FlightRecord& record);

std::string FlightHead(const FlightRecord& record);  // all but the events
std::string FlightToString(const FlightRecord& record);
// InvalidArgument that names the line, or the event, for what FlightToString cannot have written.
absl::StatusOr<FlightRecord> ParseFlight(const std::string& text);

std::string FlightPath(const std::string& folder, WorkerId worker);
// Makes the folder and those above it if need be; the file is there whole or not at all.
absl::Status WriteFlightFile(const std::string& folder, const FlightRecord& record);
// "folder/worker-2.flight: line 3: …"
absl::StatusOr<FlightRecord> ReadFlightFile(const std::string& path);
// Those of all workers that are there, ascending. NotFound if there are none, InvalidArgument if
// one is not to be read, or is of a run of another size.
absl::StatusOr<std::vector<FlightRecord>> ReadFlightFolder(const std::string& folder);

// Who waits for whom, and the first cause, as lines for a person: the chain of questions that a
// worker asks after wait_timeout (zero/flight/blame.h), asked of records of one run, ascending by
// worker; at least one. Only records of one moment are compared:
// those of the end if the run failed, else the newest. Without a failure only a worker that is at
// one thing for more than 5 s, and for more than twice as long as at anything before, begins a
// chain. A pure function (zero/flight/flight_blame.cc).
std::string BlameFlights(std::span<const FlightRecord> records);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_FLIGHT_RECORD_H_
