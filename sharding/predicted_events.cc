// From a timeline to events.
#include "sharding/predicted_events.h"

#include <algorithm>

#include "base/status.h"
#include "sharding/linked_ring.h"

namespace ringzero {
namespace {

std::vector<Event> WorkerEvents(const TimedRing& timed, int w,
                                const std::vector<uint32_t>& messages) {
  const auto& [ring, times] = timed;
  std::vector<Event> events;
  int64_t computed_until = 0;
  for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
    const Op& op = ring.op(i);
    // A receive starts when its message departs, elsewhere: here it happens when it arrives.
    const int64_t start = op.kind == OpKind::kReceive ? times.end[i] : times.start[i];
    if (IsCompute(op.kind)) {
      if (start > computed_until && !ring.ops[i].after.empty()) {
        const int cause = timed.LastCause(i);
        Op missing = ring.op(cause);
        const int where = ring.worker_of(cause);
        if (where != w) missing.peer = WorkerId(where);
        events.push_back({computed_until, EventKind::kWait, missing});
        events.push_back({start, EventKind::kWaited, missing});
      }
      computed_until = times.end[i];
    }
    events.push_back({start, EventKind::kBegin, op, messages[i]});
    events.push_back({times.end[i], EventKind::kEnd, op, messages[i]});
  }
  // By time; what begins and ends in one moment stays in its order within its track.
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  return events;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<Event>>> PredictEvents(const Plan& plan,
                                                              const SimulationOptions& options) {
  RZ_ASSIGN_OR_RETURN(const TimedRing timed, RunWhole(plan, options));
  const LinkedRing& ring = timed.ring;
  std::vector<uint32_t> messages(static_cast<size_t>(ring.count()), 0);
  for (const MessageQueue& queue : ring.queues) {
    for (size_t n = 0; n < queue.sends.size(); ++n) {
      messages[queue.sends[n]] = messages[queue.receives[n]] = static_cast<uint32_t>(n);
    }
  }
  std::vector<std::vector<Event>> events;
  for (int w = 0; w < plan.workers; ++w) {
    events.push_back(WorkerEvents(timed, w, messages));
  }
  return events;
}

}  // namespace ringzero
