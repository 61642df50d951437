// Compares events with programs.
#include "tests/sharding/event_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/program/program.h"

namespace ringzero {
namespace {

using MessageName = std::tuple<int, int, Channel, uint32_t>;  // from, to, channel, number

struct Message {
  std::optional<Event> sent, received;
};

absl::Status Wrong(int worker, const Event& event, const std::string& what) {
  return absl::InternalError(
      absl::StrCat("worker ", worker, ", \"", ToString(event), "\": ", what));
}

// A track does one thing at a time, but for sums, updates, and states that come and go in pieces.
absl::Status CheckTracks(int w, const std::vector<Event>& events) {
  std::array<std::vector<Event>, kTrackCount> open;
  int64_t time = 0;
  for (const Event& event : events) {
    const Track track = TrackOf(event);
    std::vector<Event>& now = open[static_cast<size_t>(track)];
    const bool begins = event.kind == EventKind::kBegin || event.kind == EventKind::kWait;
    if (event.time < time) return Wrong(w, event, "comes before the event in front of it");
    time = event.time;
    if (!begins) {
      const auto begun = std::find_if(now.begin(), now.end(), [&](const Event& each) {
        return each.op == event.op && each.message == event.message;
      });
      if (begun == now.end()) return Wrong(w, event, "was not begun");
      now.erase(begun);
      continue;
    }
    const bool several = track == Track::kSums || track == Track::kUpdates || track == Track::kDisk;
    if (!several && !now.empty()) return Wrong(w, event, "within " + ToString(now[0]));
    now.push_back(event);
  }
  for (const std::vector<Event>& now : open) {
    if (!now.empty()) return Wrong(w, now[0], "never ended");
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const Program& program, int w, const std::vector<Event>& events) {
  std::map<Op, int> planned;
  std::vector<Op> computing;
  for (const Op& op : program.ops) {
    ++planned[op];
    if (IsCompute(op.kind)) computing.push_back(op);
  }
  size_t computed = 0;
  for (const Event& event : events) {
    if (event.kind != EventKind::kEnd) continue;
    if (--planned[event.op] < 0) return Wrong(w, event, "was not planned, or came twice");
    if (!IsCompute(event.op.kind)) continue;
    if (computed == computing.size() || computing[computed] != event.op) {
      return Wrong(w, event, "is not in the program's order");
    }
    ++computed;
  }
  for (const auto& [op, left] : planned) {
    if (left != 0) {
      return absl::InternalError(absl::StrCat("worker ", w, ", \"", ToString(op), "\": missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEvents(const Plan& plan, std::span<const std::vector<Event>> events) {
  if (std::ssize(events) != plan.workers) return absl::InternalError("not one list per worker");
  std::map<MessageName, Message> messages;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_RETURN_IF_ERROR(CheckTracks(w, events[w]));
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, WorkerId(w), WholeRun(plan)));
    RZ_RETURN_IF_ERROR(CheckProgram(program, w, events[w]));
    for (const Event& event : events[w]) {
      const Op& op = event.op;
      if (op.kind == OpKind::kSend && event.kind == EventKind::kBegin) {
        messages[{w, op.peer.value, op.channel, event.message}].sent = event;
      }
      if (op.kind == OpKind::kReceive && event.kind == EventKind::kBegin) {
        messages[{op.peer.value, w, op.channel, event.message}].received = event;
      }
    }
  }
  for (const auto& [name, message] : messages) {
    const auto& [from, to, channel, number] = name;
    if (!message.sent.has_value()) return Wrong(to, *message.received, "was never sent");
    if (!message.received.has_value()) return Wrong(from, *message.sent, "never arrived");
    if (MessageTag(message.sent->op) != MessageTag(message.received->op)) {
      return Wrong(from, *message.sent, absl::StrCat("arrived as ", ToString(*message.received)));
    }
    if (message.sent->time > message.received->time) {
      return Wrong(from, *message.sent, "arrived before it left");
    }
  }
  return absl::OkStatus();
}

}  // namespace ringzero
