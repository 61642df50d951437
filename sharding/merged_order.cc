// Due times from programs, and what is sorted by them.
#include "sharding/merged_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/program.h"

namespace ringzero {
namespace {

// 2k times the micro-batch's number: when its lap begins.
int64_t LapBegin(const Plan& plan, WorkerId w, std::pair<int, int> iteration_and_lap) {
  const auto [t, l] = iteration_and_lap;
  const int64_t m = (static_cast<int64_t>(t) * plan.laps + l) * plan.workers + w.value;
  return 2 * plan.stages_per_worker() * m;
}

int64_t Tau(const Plan& plan, WorkerId w, const Op& compute) {
  const int stages = plan.stage_count();
  const int j = compute.stage.value;
  const int q = compute.kind == OpKind::kForward ? j : 2 * stages - 1 - j;
  return LapBegin(plan, w, {compute.iteration.value, compute.lap.value}) + q;
}

// When the last worker has what it sends to an owner, or to worker 0.
std::optional<int64_t> WhenItComes(const Plan& plan, const Op& receive) {
  const WorkerId last(plan.workers - 1);
  const int t = receive.iteration.value;
  if (receive.channel == Channel::kRetire) {
    const int after_backward = 2 * plan.stage_count() - receive.stage.value;
    return LapBegin(plan, last, {t, plan.laps - 1}) + after_backward;
  }
  if (receive.channel != Channel::kReports) return std::nullopt;
  if (receive.copy != Copy::kEvaluation) {
    return LapBegin(plan, last, {t, plan.laps - 1}) + 2 * plan.stage_count();
  }
  const bool before = plan.rule == Rule::kDp && t < plan.iterations;  // its laps
  return LapBegin(plan, last, {before ? t : t + 1, 0});
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
  // The due time of what is used by the next operation of a training lap; after the last of the
  // iteration (evaluations, collections) that of the next iteration, even if there is none.
  std::vector<int64_t> next(count + 1, LapBegin(plan, worker, {t.value + 1, 0}));
  for (int line = count - 1; line >= 0; --line) {
    const Op& op = program.ops[line];
    next[line] = IsTraining(op) ? Tau(plan, worker, op) : next[line + 1];
  }
  std::vector<MergedHop> hops;
  std::optional<int64_t> before;  // of the operation before, in this lap
  for (int line = 0; line < count; ++line) {
    const Op& op = program.ops[line];
    if (IsTraining(op)) before = Tau(plan, worker, op);
    if (op.kind != OpKind::kReceive || !HasPayload(op.channel)) continue;
    int64_t tau = next[line];
    const bool follows = FollowsItsOperation(op.channel) && op.copy != Copy::kEvaluation;
    if (follows && before.has_value()) tau = *before + 1;
    if (const std::optional<int64_t> comes = WhenItComes(plan, op)) tau = *comes;
    MergedHop hop = {.from = op.peer, .to = worker, .receive = op};
    hop.due = {tau, tau, worker.value, t.value, line};
    // In dp all of an iteration's is used before the next begins.
    if (plan.rule == Rule::kDp) {
      hop.due.tau = std::min(tau, LapBegin(plan, WorkerId(0), {t.value + 1, 0}) - 1);
    }
    hops.push_back(hop);
  }
  return hops;
}

absl::StatusOr<MergedOrder> MakeMergedOrder(const Plan& plan, const LinkedRing& ring) {
  std::vector<std::pair<MergedHop::Due, int>> long_hops;
  std::vector<std::vector<std::pair<MergedHop::Due, int>>> pairs(plan.workers);
  for (int w = 0; w < plan.workers; ++w) {
    std::vector<MergedHop> hops;
    for (int t = 0; t <= plan.iterations; ++t) {
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
        return absl::FailedPreconditionError(
            absl::StrCat(ring.Describe(i), ": the plan receives something else here"));
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
        return absl::FailedPreconditionError(
            absl::StrCat("merged order: operation ", receive, " is there twice, or is none"));
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
        return absl::FailedPreconditionError(absl::StrCat(
            ring.Describe(receive), name < 0 ? " is missing in the merged order"
                                             : " is in the wrong queue of the merged order"));
      }
      if (number < last) {
        return absl::FailedPreconditionError(absl::StrCat(
            ring.Describe(receive), " is before what its channel has before it, in merged order"));
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
  // Nothing of a later iteration is due before worker 0 begins it (dp's retires: just before).
  const int64_t until = LapBegin(plan_, WorkerId(0), {added_, 0});
  std::sort(later_.begin(), later_.end(),
            [](const MergedHop& a, const MergedHop& b) { return a.due < b.due; });
  const auto end = added_ > plan_.iterations
                       ? later_.end()
                       : std::find_if(later_.begin(), later_.end(),
                                      [&](const MergedHop& hop) { return hop.due.tau >= until; });
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
