// Names, tracks and the 32 bytes of events.
#include "sharding/study/event.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr std::array<const char*, 4> kEventKindNames = {"begin", "end", "wait", "waited"};
constexpr std::array<const char*, kTrackCount> kTrackNames = {
    "compute", "waits", "copies in", "copies out", "sums", "updates", "disk"};
constexpr std::array<const char*, kWaitCauseCount> kCauseNames = {"parameters", "gradient sums",
                                                                  "update", "token", "other"};
constexpr int kCopyCount = static_cast<int>(Copy::kState) + 1;

uint64_t Half(int value) { return static_cast<uint32_t>(value); }
// -1 is 0, so that "none" is the smallest.
uint64_t Quarter(int value) { return static_cast<uint16_t>(value + 1); }
int FromHalf(uint64_t word) { return static_cast<int>(static_cast<uint32_t>(word)); }
int FromQuarter(uint64_t word) { return static_cast<int>(static_cast<uint16_t>(word)) - 1; }
int Byte(uint64_t word) { return static_cast<int>(word & 0xff); }

}  // namespace

std::string ToString(EventKind kind) { return kEventKindNames[static_cast<size_t>(kind)]; }
std::string ToString(Track track) { return kTrackNames[static_cast<size_t>(track)]; }
std::string ToString(WaitCause cause) { return kCauseNames[static_cast<size_t>(cause)]; }

std::string ToString(const Event& event) {
  std::string text = absl::StrCat(event.time, " ", ToString(event.kind), " ", ToString(event.op));
  if (IsMessage(event.op.kind)) absl::StrAppend(&text, " #", event.message);
  return text;
}

PackedEvent Pack(const Event& event) {
  const Op& op = event.op;
  return {static_cast<uint64_t>(event.time),
          Half(op.iteration.value) << 32 | Half(op.version.value),
          uint64_t{event.message} << 32 | Quarter(op.stage.value) << 16 | Quarter(op.lap.value),
          Quarter(op.peer.value) << 32 | uint64_t(event.kind) << 24 | uint64_t(op.kind) << 16 |
              uint64_t(op.channel) << 8 | uint64_t(op.copy)};
}

absl::StatusOr<Event> Unpack(const PackedEvent& words) {
  const int kind = Byte(words[3] >> 24), op_kind = Byte(words[3] >> 16);
  const int channel = Byte(words[3] >> 8), copy = Byte(words[3]);
  if (kind >= static_cast<int>(kEventKindNames.size()) || op_kind >= kOpKindCount ||
      channel >= kChannelCount || copy >= kCopyCount || (words[3] >> 48) != 0) {
    return InvalidArgument("no event is written as ", absl::Hex(words[3], absl::kZeroPad16));
  }
  Event event{.time = static_cast<int64_t>(words[0]),
              .kind = static_cast<EventKind>(kind),
              .message = static_cast<uint32_t>(words[2] >> 32)};
  event.op = {.kind = static_cast<OpKind>(op_kind),
              .channel = static_cast<Channel>(channel),
              .copy = static_cast<Copy>(copy),
              .stage = StageId(FromQuarter(words[2] >> 16)),
              .iteration = IterationOf(words),
              .lap = Lap(FromQuarter(words[2])),
              .version = Version(FromHalf(words[1])),
              .peer = WorkerId(FromQuarter(words[3] >> 32))};
  return event;
}

Track TrackOf(const Event& event) {
  if (event.kind == EventKind::kWait || event.kind == EventKind::kWaited) return Track::kWaits;
  return KindOf(event.op.kind).track;
}

WaitCause CauseOf(const Op& missing) {
  const bool sum = missing.kind == OpKind::kAdd || missing.channel == Channel::kReturn;
  if (sum) return WaitCause::kGradientSums;
  if (missing.kind == OpKind::kUpdate) {
    return missing.peer == kNoWorker ? WaitCause::kUpdate : WaitCause::kGradientSums;
  }
  if (missing.channel == Channel::kToken) return WaitCause::kToken;
  const bool trains = missing.copy == Copy::kForward || missing.copy == Copy::kBackward;
  return CarriesParameters(missing.channel) && trains ? WaitCause::kParameters : WaitCause::kOther;
}

}  // namespace ringzero
