// Event: what happens to an operation, and when. One vocabulary for what Simulate predicts and what
// the engine measures.
//
//   Event event{.time = 81500, .kind = EventKind::kBegin, .op = op};
//   ToString(event);                      // "81500 begin F2 t5 l0 v4"
//   PackedEvent words = Pack(event);      // 32 bytes, as recorders and files hold it
//   RZ_ASSIGN_OR_RETURN(event, Unpack(words));
//
// Every operation of a program has one kBegin and one kEnd, a kSend and a kReceive as well: their
// `message` is the message's number on its channel, equal at both ends, so that the two can be
// matched. What the computing thread waits for is told by the operation that it misses: one kWait
// and one kWaited each time that this changes.
#ifndef RINGZERO_SHARDING_STUDY_EVENT_H_
#define RINGZERO_SHARDING_STUDY_EVENT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sharding/op.h"
#include "sharding/program/kinds.h"

namespace ringzero {

enum class EventKind : uint8_t {
  kBegin,   // "begin"; of a kReceive: its message is here
  kEnd,     // "end"
  kWait,    // "wait": the computing thread misses `op` from now on
  kWaited,  // "waited": and now no longer
};

struct Event {
  int64_t time = 0;  // nanoseconds of the host's steady clock; in a prediction ticks
  EventKind kind = EventKind::kBegin;
  // kWait, kWaited: what is missing. An update of another worker's (peer: that one) is missed by
  // who waits for the memory of its sum.
  Op op;
  uint32_t message = 0;  // kSend, kReceive: its number on the channel, counted from 0
  auto operator<=>(const Event&) const = default;
};

std::string ToString(EventKind kind);
std::string ToString(const Event& event);

// Stages, laps and workers up to 65534.
using PackedEvent = std::array<uint64_t, 4>;
PackedEvent Pack(const Event& event);
// Of the event's operation.
inline Iteration IterationOf(const PackedEvent& words) {
  return Iteration(static_cast<int>(static_cast<uint32_t>(words[1] >> 32)));
}
// InvalidArgument for what Pack cannot have written.
absl::StatusOr<Event> Unpack(const PackedEvent& words);

// Where an event is drawn. Between a kBegin (or kWait) and its kEnd (kWaited) a track does nothing
// else; but in a prediction sums and updates, which never wait for a thread there.
Track TrackOf(const Event& event);
std::string ToString(Track track);  // "compute", "waits", "copies in", …

// Why the computing thread waits, by what it misses.
enum class WaitCause : uint8_t {
  kParameters,    // a copy for training, relayed or injected
  kGradientSums,  // more than `pending` gradients, or no memory for a new sum
  kUpdate,        // an update of its own
  kToken,         // the stagger
  kOther,         // evaluations, collections, statistics
};
inline constexpr int kWaitCauseCount = 5;
WaitCause CauseOf(const Op& missing);
std::string ToString(WaitCause cause);  // "parameters", "gradient sums", …

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_EVENT_H_
