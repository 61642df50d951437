// The event loop of Simulate: operations end, messages depart and arrive, slots become free.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/kinds.h"
#include "sharding/loans.h"
#include "sharding/simulate.h"

namespace ringzero {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A number of 0 to most, from two others (splitmix64).
int64_t Draw(uint64_t seed, uint64_t which, int64_t most) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + which + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int64_t>((x ^ (x >> 31)) % static_cast<uint64_t>(most + 1));
}

// For each of so many operations, those in whose lists it stands.
class Reverse {
 public:
  template <typename ListOf>
  Reverse(int count, ListOf list_of) : first_(static_cast<size_t>(count) + 1) {
    for (int i = 0; i < count; ++i) {
      for (const int each : list_of(i)) ++first_[each + 1];
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    all_.resize(static_cast<size_t>(first_.back()));
    std::vector<int> next(first_.begin(), first_.end() - 1);
    for (int i = 0; i < count; ++i) {
      for (const int each : list_of(i)) all_[next[each]++] = i;
    }
  }
  std::span<const int> operator[](int i) const {
    return {all_.data() + first_[i], all_.data() + first_[i + 1]};
  }

 private:
  std::vector<int> first_, all_;
};

class Runner {
 public:
  Runner(const Plan& plan, const LinkedRing& ring, const SimulationOptions& options)
      : plan_(plan),
        ring_(ring),
        options_(options),
        states_(ring.count()),
        followers_(
            ring.count(), [&](int i) -> auto& { return ring.ops[i].after; }),
        channels_(ring.queues.size()) {
    times_.start.assign(ring.count(), 0);
    times_.end.assign(ring.count(), -1);
    for (size_t q = 0; q < ring.queues.size(); ++q) {
      for (const auto* const ends : {&ring.queues[q].sends, &ring.queues[q].receives}) {
        for (const int end : *ends) states_[end].queue = static_cast<int>(q);
      }
    }
    for (int i = 0; i < ring.count(); ++i) {
      State& state = states_[i];
      state.missing = static_cast<int>(ring.ops[i].after.size());
      state.kind = ring.op(i).kind;
      state.is_word = IsWord(ring.ops[i]);
      state.ticks = Duration(i) + (TakesTime(i) ? Jitter(i) : 0);
    }
  }

  absl::StatusOr<Timeline> Run() {
    for (int i = 0; i < ring_.count(); ++i) {
      if (states_[i].missing == 0) Start(i, 0);
    }
    while (!events_.empty() || !sharing_.empty()) {
      const int64_t next_end = sharing_.empty() ? kNever : NextSharedEnd();
      if (!events_.empty() && events_.top().first <= next_end) {
        const auto [tick, op] = events_.top();
        events_.pop();
        Arrive(op, tick);
      } else {
        Advance(next_end);
        const int op = sharing_.top().second;
        sharing_.pop();
        End(op, next_end);
      }
    }
    if (ended_ == ring_.count()) return std::move(times_);
    return FailedPrecondition("with a window of ", ring_.window, " the run is stuck: ", Circle());
  }

 private:
  // Of an operation; together, since each event needs most of it.
  struct State {
    int missing = 0;  // operations of `after` that are not done
    int queue = -1;
    OpKind kind = OpKind::kEnd;
    bool is_word = false;
    bool done = false;
    bool arrived = false;  // of a receive: its message
    int64_t ticks = 0;     // what it takes
  };
  struct ChannelState {
    std::deque<int> waiting;  // sends that have begun
    int64_t last_arrival = 0;
  };
  using Event = std::pair<int64_t, int>;  // tick, operation

  StageTicks TicksOf(StageId j) const {
    if (!options_.stage_ticks.empty()) return options_.stage_ticks[j.value];
    return {plan_.stage(j).forward_cost, plan_.stage(j).backward_cost};
  }

  int64_t Duration(int i) const {
    const Op& op = ring_.op(i);
    const int worker = ring_.worker_of(i);
    const int64_t delay = static_cast<size_t>(worker) < options_.delay_ticks.size()
                              ? options_.delay_ticks[worker]
                              : 0;
    switch (KindOf(op.kind).cost) {
      case Cost::kNone: return 0;
      case Cost::kForward: return TicksOf(op.stage).forward + delay;
      case Cost::kBackward: return TicksOf(op.stage).backward + delay;
      case Cost::kAdd: return options_.add_ticks + TicksOf(op.stage).add;
      case Cost::kUpdate: return options_.update_ticks + TicksOf(op.stage).update;
      case Cost::kLap: return options_.lap_ticks;
      case Cost::kMessage: return options_.message_ticks;
    }
    return 0;
  }

  // What jitters.
  bool TakesTime(int i) const {
    const Cost cost = KindOf(ring_.op(i).kind).cost;
    return cost == Cost::kForward || cost == Cost::kBackward || cost == Cost::kAdd ||
           cost == Cost::kUpdate;
  }
  int64_t Jitter(int i) const {
    return options_.jitter_ticks > 0 ? Draw(options_.seed, i, options_.jitter_ticks) : 0;
  }

  void Start(int i, int64_t now) {
    const State& state = states_[i];
    if (state.kind == OpKind::kReceive) {  // its message starts it
      if (!state.is_word) return Depart(state.queue, now);
      if (state.arrived && !state.done) events_.push({now, i});
      return;
    }
    times_.start[i] = now;
    if (options_.cores == 0 || state.ticks == 0) return events_.push({now + state.ticks, i});
    Advance(now);
    sharing_.push({progress_ + static_cast<double>(state.ticks), i});
  }

  // Ticks of computing that each who shares the cores gets done in one tick.
  double Rate() const {
    return std::min(1.0,
                    static_cast<double>(options_.cores) / static_cast<double>(sharing_.size()));
  }
  // Before somebody joins or leaves.
  void Advance(int64_t now) {
    if (!sharing_.empty()) progress_ += Rate() * static_cast<double>(now - progress_tick_);
    progress_tick_ = now;
  }
  // Of the first one, if nobody joins before.
  int64_t NextSharedEnd() const {
    const double left = (sharing_.top().first - progress_) / Rate();
    constexpr double kRounding = 1e-6;  // of progress_: not to be taken for another tick
    return progress_tick_ + std::max<int64_t>(0, static_cast<int64_t>(std::ceil(left - kRounding)));
  }

  // An operation ends. What is lent may be here before the name that it is to have is free.
  void Arrive(int i, int64_t now) {
    states_[i].arrived = true;
    if (states_[i].missing == 0) End(i, now);
  }

  void End(int i, int64_t now) {
    times_.end[i] = now;
    State& state = states_[i];
    state.done = true;
    ++ended_;
    for (const int follower : followers_[i]) {
      if (--states_[follower].missing == 0) Start(follower, now);
    }
    if (state.kind == OpKind::kSend) {
      channels_[state.queue].waiting.push_back(i);
      Depart(state.queue, now);
    }
  }

  void Depart(int queue, int64_t now) {
    ChannelState& channel = channels_[queue];
    const MessageQueue& ends = ring_.queues[queue];
    while (!channel.waiting.empty()) {
      const int receive = ring_.partner[channel.waiting.front()];
      if (!ends.words && states_[receive].missing > 0) return;  // its block is not free
      channel.waiting.pop_front();
      times_.start[receive] = now;
      channel.last_arrival =
          std::max(channel.last_arrival, now + options_.latency_ticks + Jitter(receive));
      events_.push({channel.last_arrival, receive});
    }
  }

  // Something that `i`, which never ended, waits for.
  int Blocker(int i, std::string* why) const {
    for (const int after : ring_.ops[i].after) {
      if (!states_[after].done) {
        *why = ring_.WaitsForSlot(i, after) ? " waits for a slot until " : " waits for ";
        return after;
      }
    }
    *why = " waits for the message of ";
    return ring_.partner[i];
  }

  std::string Circle() const {
    std::string why, text;
    int i = 0;
    while (states_[i].done) ++i;
    std::vector<bool> seen(states_.size(), false);
    for (; !seen[i]; i = Blocker(i, &why)) seen[i] = true;
    const int first = i;
    int length = 0;
    constexpr int kShown = 12;
    do {
      const int next = Blocker(i, &why);
      if (length++ < kShown) absl::StrAppend(&text, ring_.Describe(i), why);
      i = next;
    } while (i != first);
    if (length > kShown) absl::StrAppend(&text, "... (", length - kShown, " more) ");
    return absl::StrCat(text, ring_.Describe(first));
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  const SimulationOptions& options_;
  std::vector<State> states_;
  const Reverse followers_;
  std::vector<ChannelState> channels_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  // With cores to share: what everybody who was there from the beginning would have got done, and
  // at which of it the operations that share them end.
  using SharedEnd = std::pair<double, int>;  // of progress, operation
  std::priority_queue<SharedEnd, std::vector<SharedEnd>, std::greater<SharedEnd>> sharing_;
  double progress_ = 0;
  int64_t progress_tick_ = 0;
  int ended_ = 0;
  Timeline times_;
};

}  // namespace

absl::StatusOr<Timeline> RunTimeline(const Plan& plan, const LinkedRing& ring,
                                     const SimulationOptions& options) {
  return Runner(plan, ring, options).Run();
}

}  // namespace ringzero
