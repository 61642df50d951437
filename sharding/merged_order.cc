// Due times from programs, and what is sorted by them.
#include "sharding/merged_order.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "sharding/program.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

using Wide = __int128;
using Due = MergedHop::Due;

// Time by cost, in units of 1 / N of the plan's.
class CostClock {
 public:
  explicit CostClock(const Plan& plan) : plan_(plan), before_(1, 0) {
    for (const StagePlan& stage : plan.stages) Add(stage.forward_cost);
    for (int j = plan.stage_count() - 1; j >= 0; --j) {
      Add(plan.stages[j].has_backward ? plan.stages[j].backward_cost : 0);
    }
  }

  // When operation q (0..2S: the end) of a micro-batch's lap begins.
  Due At(const MicroBatch& m, int q) const {
    const int64_t number =
        (static_cast<int64_t>(m.iteration.value) * plan_.laps + m.lap.value) * plan_.workers +
        m.worker.value + Stalls(m.iteration) * (plan_.workers - 1);
    return {.time = number * before_.back() + plan_.workers * before_[q],
            .operation = number * static_cast<int64_t>(before_.size()) + q};
  }
  Due Begin(WorkerId w, Iteration t) const { return At({w, t, Lap(0)}, 0); }
  int Number(const Op& compute) const {
    const int j = compute.stage.value;
    return compute.kind == OpKind::kForward ? j : 2 * plan_.stage_count() - 1 - j;
  }

 private:
  // How often, up to an iteration's laps, all workers have waited for the last one's sums to look
  // at a version before it is overwritten. (In dp they do so in every iteration.)
  int64_t Stalls(Iteration t) const {
    if (!plan_.predict) return 0;
    const std::vector<int>& named = plan_.collection.versions;
    int64_t stalls = std::upper_bound(named.begin(), named.end(), t.value) - named.begin();
    for (const int every : {plan_.evaluation.every, plan_.collection.every}) {
      if (every > 0) stalls += t.value / every;
    }
    return stalls;
  }

  void Add(int64_t cost) { before_.push_back(before_.back() + cost); }

  const Plan& plan_;
  std::vector<Wide> before_;  // of operation q: the cost of those before it
};

// When the last worker has what it sends to an owner, to worker 0, or to all.
std::optional<Due> WhenItComes(const Plan& plan, const CostClock& clock, const Op& receive) {
  const Iteration t = receive.iteration;
  const MicroBatch last{WorkerId(plan.workers - 1), t, Lap(plan.laps - 1)};
  const int stages = plan.stage_count();
  if (receive.channel == Channel::kRetire || receive.channel == Channel::kFinished) {
    MicroBatch sends = last;
    if (receive.lap != kNoLap) sends.lap = receive.lap;
    return clock.At(sends, 2 * stages - receive.stage.value);
  }
  if (receive.channel == Channel::kNorms) {
    // When all is complete: the squares after the last sum, then the norm.
    Due due = clock.At(last, 2 * stages);
    due.after = receive.stage == kNoStage ? 2 : 1;
    return due;
  }
  const bool evaluated = receive.copy == Copy::kEvaluation;
  // Later laps of an evaluation go on with what the last worker's first one ends with.
  const bool next_lap = receive.channel == Channel::kMetrics && evaluated && receive.lap.value > 0;
  if (receive.channel != Channel::kReports && !next_lap) return std::nullopt;
  if (!evaluated) return clock.At(last, 2 * stages);
  const bool before_laps = plan.updates_in_place() && t.value < plan.iterations;
  return clock.Begin(last.worker, before_laps ? t : Iteration(t.value + 1));
}

// What is taken in after the operation that it belongs to, not before the next.
bool FollowsItsOperation(Channel channel) {
  return channel == Channel::kSum || channel == Channel::kBuffers || channel == Channel::kMetrics;
}

bool IsTraining(const Op& op) {
  return op.kind == OpKind::kForward || op.kind == OpKind::kBackward;
}

}  // namespace

std::string ToString(Merging merging) {
  switch (merging) {
    case Merging::kNone: return "none";
    case Merging::kLongHops: return "long_hops";
    case Merging::kPerPair: return "per_pair";
  }
  return "unknown";
}

bool IsLongHop(const Plan& plan, WorkerId from, WorkerId to) {
  return to.value != (from.value + 1) % plan.workers;
}

bool HasPayload(Channel channel) { return channel != Channel::kToken && channel != Channel::kNone; }

absl::StatusOr<std::vector<MergedHop>> ReceivesOf(const Plan& plan, WorkerId worker, Iteration t) {
  RZ_ASSIGN_OR_RETURN(const Program program,
                      MakeProgram(plan, worker, {t, Iteration(t.value + 1)}));
  const int count = static_cast<int>(program.ops.size());
  const CostClock clock(plan);
  const Iteration following(t.value + 1);
  // The due time of what is used by the next operation of a training lap; after the last of the
  // iteration (evaluations, collections) that of the next iteration, even if there is none.
  std::vector<Due> next(count + 1, clock.Begin(worker, following));
  for (int line = count - 1; line >= 0; --line) {
    const Op& op = program.ops[line];
    next[line] = next[line + 1];
    if (IsTraining(op)) next[line] = clock.At({worker, op.iteration, op.lap}, clock.Number(op));
  }
  std::vector<MergedHop> hops;
  std::optional<Due> ended;  // the operation before
  for (int line = 0; line < count; ++line) {
    const Op& op = program.ops[line];
    if (IsTraining(op)) ended = clock.At({worker, op.iteration, op.lap}, clock.Number(op) + 1);
    if (op.kind != OpKind::kReceive || !HasPayload(op.channel)) continue;
    Due due = next[line];
    const bool follows = FollowsItsOperation(op.channel) && op.copy != Copy::kEvaluation;
    if (follows && ended.has_value()) due = *ended;
    if (const std::optional<Due> comes = WhenItComes(plan, clock, op)) due = *comes;
    // All of an iteration's is used before the next begins, if that is of dp.
    if (plan.rule_at(following) == Rule::kDp) {
      const Due begins = clock.Begin(WorkerId(0), following);
      due.time = std::min(due.time, begins.time);
      due.operation = std::min(due.operation, begins.operation - 1);
    }
    due.receiver = worker.value;
    due.iteration = t.value;
    due.line = line;
    hops.push_back({.from = op.peer, .to = worker, .receive = op, .due = due});
  }
  return hops;
}

absl::StatusOr<MergedOrder> MakeMergedOrder(const Plan& plan, const LinkedRing& ring) {
  std::vector<std::pair<MergedHop::Due, int>> long_hops;
  std::vector<std::vector<std::pair<MergedHop::Due, int>>> pairs(plan.workers);
  for (int w = 0; w < plan.workers; ++w) {
    std::vector<MergedHop> hops;
    for (int t = plan.first_iteration; t <= plan.iterations; ++t) {
      RZ_ASSIGN_OR_RETURN(const std::vector<MergedHop> more,
                          ReceivesOf(plan, WorkerId(w), Iteration(t)));
      hops.insert(hops.end(), more.begin(), more.end());
    }
    // The ring's programs are those of the plan (Verify has compared them), in this order.
    size_t next = 0;
    for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
      const Op& op = ring.op(i);
      if (op.kind != OpKind::kReceive || !HasPayload(op.channel)) continue;
      if (next == hops.size() || hops[next].receive != op) {
        return FailedPrecondition(ring.Describe(i), ": the plan receives something else here");
      }
      const MergedHop& hop = hops[next++];
      auto& queue = IsLongHop(plan, hop.from, hop.to) ? long_hops : pairs[hop.from.value];
      queue.push_back({hop.due, i});
    }
  }
  const auto sorted = [](std::vector<std::pair<MergedHop::Due, int>>& queue) {
    std::sort(queue.begin(), queue.end());
    std::vector<int> receives;
    for (const auto& [due, receive] : queue) receives.push_back(receive);
    return receives;
  };
  MergedOrder order{.long_hops = sorted(long_hops)};
  for (auto& pair : pairs) order.pairs.push_back(sorted(pair));
  return order;
}

absl::Status CheckMergedOrder(const Plan& plan, const LinkedRing& ring, const MergedOrder& order) {
  std::vector<std::pair<int, int>> place(ring.count(), {-1, -1});  // queue, number in it
  const auto take = [&](const std::vector<int>& queue, int name) -> absl::Status {
    for (size_t i = 0; i < queue.size(); ++i) {
      const int receive = queue[i];
      if (receive < 0 || receive >= ring.count() || place[receive].first >= 0) {
        return FailedPrecondition("merged order: operation ", receive,
                                  " is there twice, or is none");
      }
      place[receive] = {name, static_cast<int>(i)};
    }
    return absl::OkStatus();
  };
  RZ_RETURN_IF_ERROR(take(order.long_hops, plan.workers));
  for (size_t w = 0; w < order.pairs.size(); ++w) {
    RZ_RETURN_IF_ERROR(take(order.pairs[w], static_cast<int>(w)));
  }
  for (const MessageQueue& queue : ring.queues) {
    if (!HasPayload(queue.channel)) continue;
    const int wanted = IsLongHop(plan, queue.from, queue.to) ? plan.workers : queue.from.value;
    int last = -1;
    for (const int receive : queue.receives) {
      const auto [name, number] = place[receive];
      if (name != wanted) {
        return FailedPrecondition(ring.Describe(receive),
                                  name < 0 ? " is missing in the merged order"
                                           : " is in the wrong queue of the merged order");
      }
      if (number < last) {
        return FailedPrecondition(ring.Describe(receive),
                                  " is before what its channel has before it, in merged order");
      }
      last = number;
    }
  }
  return absl::OkStatus();
}

absl::Status LongHopOrderer::AddIteration() {
  for (int w = 0; w < plan_.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(const std::vector<MergedHop> hops,
                        ReceivesOf(plan_, WorkerId(w), Iteration(added_)));
    for (const MergedHop& hop : hops) {
      const bool ours = self_ == kNoWorker || hop.from == self_ || hop.to == self_;
      if (ours && IsLongHop(plan_, hop.from, hop.to)) later_.push_back(hop);
    }
  }
  ++added_;
  // Nothing of a later iteration is due before worker 0 begins it.
  const Wide until = CostClock(plan_).Begin(WorkerId(0), Iteration(added_)).time;
  std::sort(later_.begin(), later_.end(),
            [](const MergedHop& a, const MergedHop& b) { return a.due < b.due; });
  const auto end = added_ > plan_.iterations
                       ? later_.end()
                       : std::find_if(later_.begin(), later_.end(),
                                      [&](const MergedHop& hop) { return hop.due.time >= until; });
  ready_.assign(std::make_reverse_iterator(end), later_.rend());
  later_.erase(later_.begin(), end);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<MergedHop>> LongHopOrderer::Next() {
  while (ready_.empty() && added_ <= plan_.iterations) RZ_RETURN_IF_ERROR(AddIteration());
  if (ready_.empty()) return std::optional<MergedHop>();
  const MergedHop next = ready_.back();
  ready_.pop_back();
  return std::optional<MergedHop>(next);
}

}  // namespace ringzero
