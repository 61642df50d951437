// Finds, for each operation, the operations that it waits for.
#include "sharding/link.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/label.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

absl::Status Missing(const Op& op, const std::string& what) {
  return FailedPrecondition("\"", ToString(op), "\": ", what, " does not come before it");
}

int64_t Find(const std::map<std::pair<int, int>, int64_t>& map, int a, int b) {
  const auto found = map.find({a, b});
  return found == map.end() ? kNoOp : found->second;
}

}  // namespace

class Linker::State {
 public:
  State(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {}

  absl::StatusOr<std::vector<LinkedOp>> Append(std::span<const Op> ops) {
    base_ = next_;
    linked_.clear();
    for (const Op& op : ops) {
      LinkedOp linked;
      linked.op = op;
      // Lines as in the program's text, where the first is a head.
      RZ_RETURN_IF_ERROR(Annotate(Resolve(linked), absl::StrCat("line ", next_ + 2)));
      std::sort(linked.after.begin(), linked.after.end());
      linked.after.erase(std::unique(linked.after.begin(), linked.after.end()), linked.after.end());
      linked_.push_back(std::move(linked));
      ++next_;
    }
    return std::move(linked_);
  }

 private:
  bool alone() const { return plan_.workers == 1; }
  static void After(LinkedOp& linked, int64_t op) {
    if (op >= 0) linked.after.push_back(op);
  }
  static bool IsEvaluation(const Op& op) { return op.copy == Copy::kEvaluation; }

  absl::Status Resolve(LinkedOp& linked) {
    const Op& op = linked.op;
    const bool has_stage = op.stage.value >= 0 && op.stage.value < plan_.stage_count();
    bool needs_stage = op.kind != OpKind::kEnd && op.kind != OpKind::kFold &&
                       op.kind != OpKind::kReport && op.kind != OpKind::kNorm &&
                       op.channel != Channel::kMetrics && op.channel != Channel::kReports;
    if (op.channel == Channel::kNorms) needs_stage = op.stage != kNoStage;
    if (needs_stage != has_stage) return Missing(op, "a stage that the plan knows");
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kBackward:
      case OpKind::kEvaluate:
      case OpKind::kCollect:
      case OpKind::kEnd: return ResolveCompute(linked);
      case OpKind::kReceive: return ResolveReceive(linked);
      case OpKind::kSend: return ResolveSend(linked);
      case OpKind::kAdd: return ResolveAdd(linked);
      case OpKind::kUpdate: return ResolveUpdate(linked);
      case OpKind::kApply: return ResolveApply(linked);
      case OpKind::kSnapshot: return ResolveSnapshot(linked);
      case OpKind::kFold: return ResolveFold(linked);
      case OpKind::kReport: return ResolveReport(linked);
      case OpKind::kKeep: return ResolveKeep(linked);
      case OpKind::kRelease: return ResolveRelease(linked);
      case OpKind::kSquares: return ResolveSquares(linked);
      case OpKind::kNorm: return ResolveNorm(linked);
    }
    return absl::InternalError("an operation of no kind");
  }

  // Where this worker has version v of stage j for traveller `copy`.
  absl::Status ReadCopy(LinkedOp& linked, StageId j, Version v, Copy copy) {
    if (plan_.stage(j).parameter_bytes == 0) return absl::OkStatus();
    if (copy == Copy::kBackward && !HasBackwardCopy(plan_, j)) copy = Copy::kForward;
    Read read{.stage = j, .version = v};
    if (plan_.has_masters(self_, j)) {
      read.owned = true;
      if (UpdatesBehind(v) >= 1) {
        read.op = Find(updates_, j.value, UpdatesBehind(v));
        if (read.op == kNoOp) return Missing(linked.op, absl::StrCat("version ", LabelText(v)));
      }
      After(linked, read.op);
      NoteUse(linked.op, j, v);
    } else if (IsHeld(copy)) {
      const auto held = held_.find({j.value, v.value});
      if (held == held_.end()) {
        return Missing(linked.op,
                       absl::StrCat("its copy of stage ", j.value, " version ", LabelText(v)));
      }
      read.held = true;
      read.op = held->second.receive;
      After(linked, read.op);
      if (IsCompute(linked.op.kind)) {
        held->second.last_compute = next_;
      } else {
        held->second.sends.push_back(next_);
      }
    } else {
      const auto found = copies_.find({int(copy), j.value});
      if (found == copies_.end() || found->second.version != v || found->second.op < base_) {
        return Missing(linked.op,
                       absl::StrCat("its copy of stage ", j.value, " version ", LabelText(v)));
      }
      read.op = found->second.op;
      After(linked, read.op);
      ++linked_[read.op - base_].users;
    }
    linked.reads.push_back(read);
    return absl::OkStatus();
  }

  // Collections have a traveller of their own, which is not held.
  bool IsHeld(Copy copy) const { return plan_.holds_copies() && copy != Copy::kCollection; }

  // Computing is in order: the last one of it stands for all.
  absl::Status ResolveRelease(LinkedOp& linked) {
    const Op& op = linked.op;
    const auto held = held_.find({op.stage.value, op.version.value});
    if (held == held_.end()) return Missing(op, "the copy");
    linked.reads.push_back(
        {.stage = op.stage, .version = op.version, .op = held->second.receive, .held = true});
    After(linked, held->second.receive);
    After(linked, held->second.last_compute);
    for (const int64_t send : held->second.sends) After(linked, send);
    held_.erase(held);
    NoteUse(op, op.stage, op.version);
    return absl::OkStatus();
  }

  // The copies that the computing of a stage reads: its own, and those of tied stages.
  absl::Status ReadCopies(LinkedOp& linked, const Op& op, Copy copy) {
    RZ_RETURN_IF_ERROR(ReadCopy(linked, op.stage, op.version, copy));
    for (int i = 0; i < op.stage.value; ++i) {
      if (plan_.last_use(StageId(i)) != op.stage) continue;
      const Version v = op.kind == OpKind::kEvaluate
                            ? VersionAfter(plan_, StageId(i), op.iteration.value)
                            : ReadVersion(plan_, {self_, op.iteration, op.lap}, StageId(i));
      RZ_RETURN_IF_ERROR(ReadCopy(linked, StageId(i), v, copy));
    }
    return absl::OkStatus();
  }

  absl::Status ResolveCompute(LinkedOp& linked) {
    const Op& op = linked.op;
    After(linked, last_compute_);
    After(linked, std::exchange(token_, kNoOp));
    const size_t pending = static_cast<size_t>(plan_.pending);
    if (gradients_.size() > pending) After(linked, gradients_[gradients_.size() - 1 - pending]);
    switch (op.kind) {
      case OpKind::kForward:
        RZ_RETURN_IF_ERROR(AfterOverflows(linked));
        RZ_RETURN_IF_ERROR(ReadCopies(linked, op, Copy::kForward));
        if (plan_.stage(op.stage).buffer_bytes > 0) {
          forwards_[{op.stage.value, op.lap.value}] = next_;
        }
        break;
      case OpKind::kBackward:
        RZ_RETURN_IF_ERROR(ReadCopies(linked, op, Copy::kBackward));
        if (plan_.stage(op.stage).sum_bytes > 0) {
          backwards_[{op.stage.value, op.lap.value}] = next_;
        }
        break;
      case OpKind::kEvaluate:
        RZ_RETURN_IF_ERROR(ReadCopies(linked, op, Copy::kEvaluation));
        RZ_RETURN_IF_ERROR(NeedSnapshot(linked));
        break;
      case OpKind::kCollect:
        if (IsCollectedState(op)) {
          RZ_RETURN_IF_ERROR(TakeCollected(linked));
        } else {
          RZ_RETURN_IF_ERROR(ReadCopy(linked, op.stage, op.version, Copy::kCollection));
          RZ_RETURN_IF_ERROR(NeedSnapshot(linked));
        }
        break;
      default: break;
    }
    last_compute_ = next_;
    return absl::OkStatus();
  }

  absl::Status NeedSnapshot(LinkedOp& linked) {
    const StageId j = linked.op.stage;
    if (plan_.stage(j).buffer_bytes == 0 || linked.op.iteration.value == 0) return absl::OkStatus();
    const int64_t snapshot = Find(snapshots_, j.value, linked.op.iteration.value);
    if (snapshot == kNoOp) return Missing(linked.op, "the snapshot of its running statistics");
    linked.snapshot = snapshot;
    After(linked, snapshot);
    return absl::OkStatus();
  }

  absl::Status ResolveReceive(LinkedOp& linked) {
    const Op& op = linked.op;
    const std::pair<int, int> place{op.stage.value, op.lap.value};
    switch (op.channel) {
      case Channel::kForwardCopy:
      case Channel::kBackwardCopy:
      case Channel::kInject:
      case Channel::kEvaluation:
      case Channel::kCollection:
        if (IsHeld(op.copy)) {
          held_[{op.stage.value, op.version.value}] = {.receive = next_};
        } else {
          copies_[{int(op.copy), op.stage.value}] = {op.version, next_};
        }
        break;
      case Channel::kSum: sums_[op.stage.value] = next_; break;
      case Channel::kRetire:
      case Channel::kFinished: retired_[op.stage.value] = next_; break;
      case Channel::kBuffers: buffers_[op.stage.value] = next_; break;
      case Channel::kSnapshots: snapshots_[{op.stage.value, op.iteration.value}] = next_; break;
      case Channel::kMetrics: metrics_[IsEvaluation(op)] = next_; break;
      case Channel::kReports: reports_[IsEvaluation(op)] = next_; break;
      case Channel::kToken: token_ = next_; break;
      case Channel::kStates:
        collected_[{int(op.copy), op.stage.value, op.iteration.value}] = next_;
        break;
      case Channel::kNorms:
        if (op.stage == kNoStage) {
          NoteNorm(op.iteration.value);
        } else {
          squares_[{op.stage.value, op.iteration.value}] = next_;
        }
        break;
      case Channel::kNone: return Missing(op, "a channel");
    }
    return absl::OkStatus();
  }

  absl::Status ResolveSend(LinkedOp& linked) {
    const Op& op = linked.op;
    switch (op.channel) {
      case Channel::kForwardCopy:
      case Channel::kBackwardCopy:
      case Channel::kInject:
      case Channel::kEvaluation:
      case Channel::kCollection:
        RZ_RETURN_IF_ERROR(ReadCopy(linked, op.stage, op.version, op.copy));
        if (!linked.reads.empty() && !linked.reads[0].owned && !linked.reads[0].held) {
          // Relays of what the update will overwrite are gone before our part of its sum is.
          NoteUse(op, op.stage, op.version);
        }
        break;
      case Channel::kSum:
      case Channel::kRetire: {
        linked.takes = Take(sums_, op.stage.value);
        if (linked.takes == kNoOp) return Missing(op, "the sum");
        // Where every worker has its own masters, it overwrites them itself.
        if (const auto update = LastPartOf(op); update && !plan_.spreads_sums()) {
          const bool owns = plan_.owner(op.stage) == self_;
          AfterUsesOfOverwritten(linked, *update, owns ? Uses::kKeep : Uses::kForget);
        }
        break;
      }
      case Channel::kBuffers:
        linked.takes = Take(buffers_, op.stage.value);
        if (linked.takes == kNoOp) return Missing(op, "the running statistics");
        for (const int64_t snapshot : snapshots_of_[op.stage.value]) After(linked, snapshot);
        break;
      case Channel::kSnapshots:
        linked.snapshot = Find(snapshots_, op.stage.value, op.iteration.value);
        RZ_RETURN_IF_ERROR(UseResult(linked, linked.snapshot, "the snapshot"));
        break;
      case Channel::kMetrics:
      case Channel::kReports:
        linked.takes = std::exchange(metrics_[IsEvaluation(op)], kNoOp);
        if (linked.takes == kNoOp) return Missing(op, "the fold");
        break;
      case Channel::kToken: After(linked, last_compute_); break;
      case Channel::kStates: RZ_RETURN_IF_ERROR(TakeCollected(linked)); break;
      case Channel::kFinished:
        linked.snapshot = CompleteSum(op.stage);
        RZ_RETURN_IF_ERROR(UseResult(linked, linked.snapshot, "the complete sum"));
        break;
      case Channel::kNorms:
        if (op.stage == kNoStage) {
          RZ_RETURN_IF_ERROR(AfterNorm(linked, op.iteration.value));
        } else {
          RZ_RETURN_IF_ERROR(AfterSquares(linked, op.stage.value));
        }
        break;
      case Channel::kNone: return Missing(op, "a channel");
    }
    After(linked, linked.takes);
    int64_t& last = last_sends_[{int(op.channel), op.peer.value}];
    if (last > 0) After(linked, last - 1);  // stored plus one, so that 0 means none
    last = next_ + 1;
    return absl::OkStatus();
  }

  static int64_t Take(std::map<int, int64_t>& map, int stage) {
    const auto found = map.find(stage);
    return found == map.end() ? kNoOp : std::exchange(found->second, kNoOp);
  }

  // Operation `op`, being linked, reads or relays version v: what overwrites it has to wait. A
  // stage without a sum is never overwritten. Computing is in order, and so are the sends of one
  // channel: the last stands for all, and what is kept does not grow with the laps.
  void NoteUse(const Op& op, StageId j, Version v) {
    if (plan_.stage(j).sum_bytes == 0) return;
    std::pair<int, int> line{-1, 0};
    if (op.kind == OpKind::kSend) line = {int(op.channel), op.peer.value};
    if (op.kind == OpKind::kRelease) line = {-2, 0};
    uses_[{j.value, v.value}][line] = next_;
  }

  // The update whose sum this send hands on, if this worker contributes nothing more to it.
  std::optional<Iteration> LastPartOf(const Op& send) const {
    if (send.channel == Channel::kRetire) return send.iteration;
    const MicroBatch receiver{send.peer, send.iteration, send.lap};
    const std::optional<MicroBatch> ours = PreviousMicroBatch(plan_, receiver);
    if (!ours || ours->lap.value != plan_.laps - 1) return std::nullopt;
    return ours->iteration;
  }

  // Of what an update overwrites.
  enum class Uses { kKeep, kForget };
  void AfterUsesOfOverwritten(LinkedOp& linked, Iteration update, Uses then) {
    for (const Version overwritten : OverwrittenVersions(plan_, update)) {
      const auto uses = uses_.find({linked.op.stage.value, overwritten.value});
      if (uses == uses_.end()) continue;
      for (const auto& [line, use] : uses->second) After(linked, use);
      if (then == Uses::kForget) uses_.erase(uses);
    }
  }

  absl::Status ResolveAdd(LinkedOp& linked) {
    const Op& op = linked.op;
    const int64_t backward = Find(backwards_, op.stage.value, op.lap.value);
    if (backward == kNoOp) return Missing(op, "its backward");
    backwards_.erase({op.stage.value, op.lap.value});
    After(linked, backward);
    if (!BeginsSum({self_, op.iteration, op.lap})) {
      linked.takes = Take(sums_, op.stage.value);
      if (linked.takes == kNoOp) return Missing(op, "the sum");
      After(linked, linked.takes);
    }
    sums_[op.stage.value] = next_;
    gradients_.push_back(next_);
    if (gradients_.size() > static_cast<size_t>(plan_.pending) + 1) {
      gradients_.pop_front();
    }
    return absl::OkStatus();
  }

  // Where the complete sum of a stage is, and stays.
  int64_t CompleteSum(StageId j) const {
    if (const auto taken = taken_.find(j.value); taken != taken_.end()) return taken->second;
    const auto& sums = self_ == SumsEndAt(plan_) ? sums_ : retired_;
    const auto found = sums.find(j.value);
    return found == sums.end() ? kNoOp : found->second;
  }

  void NoteNorm(int iteration) {
    norms_.erase(norms_.begin(), norms_.lower_bound(iteration - 1));
    norms_[iteration] = next_;
  }
  absl::Status AfterNorm(LinkedOp& linked, int iteration) {
    const auto norm = norms_.find(iteration);
    if (norm == norms_.end()) return Missing(linked.op, "the norm");
    After(linked, norm->second);
    return absl::OkStatus();
  }
  // An iteration begins when its loss scale is known.
  absl::Status AfterOverflows(LinkedOp& linked) {
    const Op& op = linked.op;
    const int norm = op.iteration.value - plan_.scale_lag();
    const bool begins = op.stage.value == 0 && op.lap.value == 0;
    if (!plan_.skips() || !begins || norm < 0) return absl::OkStatus();
    return AfterNorm(linked, norm);
  }
  absl::Status AfterSquares(LinkedOp& linked, int stage) {
    const int64_t squares = Find(squares_, stage, linked.op.iteration.value);
    if (squares == kNoOp) return Missing(linked.op, "the squares of a stage");
    After(linked, squares);
    return absl::OkStatus();
  }

  // With its own sum, or (plan.takes_sums()) from where it lay into memory of the owner's own: of
  // that there is one of a stage, which the update before must have read.
  absl::Status ResolveSquares(LinkedOp& linked) {
    const Op& op = linked.op;
    const int64_t sum = CompleteSum(op.stage);
    if (sum == kNoOp || taken_.count(op.stage.value) > 0) return Missing(op, "the complete sum");
    After(linked, sum);
    if (plan_.spreads_sums()) RZ_RETURN_IF_ERROR(UseResult(linked, sum, "the complete sum"));
    if (plan_.takes_sums()) {
      const bool local = self_ == SumsEndAt(plan_);
      linked.takes = Take(local ? sums_ : retired_, op.stage.value);
      taken_[op.stage.value] = next_;
      After(linked, Find(updates_, op.stage.value, op.iteration.value));
    } else {
      linked.snapshot = sum;
    }
    squares_.erase({op.stage.value, op.iteration.value - 1});
    squares_[{op.stage.value, op.iteration.value}] = next_;
    return absl::OkStatus();
  }

  absl::Status ResolveNorm(LinkedOp& linked) {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (plan_.stages[j].sum_bytes == 0) continue;
      RZ_RETURN_IF_ERROR(AfterSquares(linked, j));
    }
    NoteNorm(linked.op.iteration.value);
    return absl::OkStatus();
  }

  // What operation `from` made or received stays until all its users are done: a complete sum that
  // is updated from and passed on, a snapshot that is sent.
  absl::Status UseResult(LinkedOp& linked, int64_t from, const std::string& what) {
    if (from < base_) return Missing(linked.op, what);
    ++linked_[from - base_].users;
    After(linked, from);
    return absl::OkStatus();
  }

  absl::Status ResolveUpdate(LinkedOp& linked) {
    const Op& op = linked.op;
    const bool local = self_ == SumsEndAt(plan_);
    const bool taken = plan_.takes_sums();
    linked.takes = Take(taken ? taken_ : local ? sums_ : retired_, op.stage.value);
    if (linked.takes == kNoOp) return Missing(op, "the complete sum");
    taken_.erase(op.stage.value);
    After(linked, linked.takes);
    if (plan_.spreads_sums() && !taken) {
      RZ_RETURN_IF_ERROR(UseResult(linked, linked.takes, "the complete sum"));
    }
    if (plan_.counts_squares()) RZ_RETURN_IF_ERROR(AfterSquares(linked, op.stage.value));
    const int norm = plan_.norm_iteration(op.iteration.value);
    if (plan_.has_norm() && norm >= 0) RZ_RETURN_IF_ERROR(AfterNorm(linked, norm));
    After(linked, Find(updates_, op.stage.value, op.version.value - 1));
    AfterUsesOfOverwritten(linked, op.iteration, Uses::kForget);
    updates_.erase({op.stage.value, op.version.value - 2});
    updates_[{op.stage.value, op.version.value}] = next_;
    // It takes the sum that was kept, and writes over the state kept of the version before.
    After(linked, Take(kept_sums_, op.stage.value));
    After(linked, Take(kept_states_, op.stage.value));
    return absl::OkStatus();
  }

  // Copies for whoever collects: of the sum before the update takes it, of the state after it.
  absl::Status ResolveKeep(LinkedOp& linked) {
    const Op& op = linked.op;
    if (op.copy == Copy::kGradient) {
      linked.snapshot = CompleteSum(op.stage);
      kept_sums_[op.stage.value] = next_;
    } else if (op.copy == Copy::kState) {
      linked.snapshot = Find(updates_, op.stage.value, op.iteration.value);
      kept_states_[op.stage.value] = next_;
    }
    if (linked.snapshot == kNoOp) return Missing(op, "what it keeps");
    After(linked, linked.snapshot);
    collected_[{int(op.copy), op.stage.value, op.iteration.value}] = next_;
    return absl::OkStatus();
  }

  static bool IsCollectedState(const Op& op) {
    return op.copy == Copy::kGradient || op.copy == Copy::kState;
  }

  // The sum or state of a collected version: as its owner kept it, or the message that brought it.
  absl::Status TakeCollected(LinkedOp& linked) {
    const Op& op = linked.op;
    const auto found = collected_.find({int(op.copy), op.stage.value, op.iteration.value});
    if (found == collected_.end()) return Missing(op, "what it takes over");
    linked.takes = found->second;
    After(linked, linked.takes);
    collected_.erase(found);
    return absl::OkStatus();
  }

  absl::Status ResolveApply(LinkedOp& linked) {
    const Op& op = linked.op;
    const int64_t forward = Find(forwards_, op.stage.value, op.lap.value);
    if (forward == kNoOp) return Missing(op, "its forward");
    forwards_.erase({op.stage.value, op.lap.value});
    After(linked, forward);
    const bool first = self_.value == 0 && op.lap.value == 0 && op.iteration.value == 0;
    if (!first) {
      linked.takes = Take(buffers_, op.stage.value);
      if (linked.takes == kNoOp) return Missing(op, "the running statistics");
      After(linked, linked.takes);
      for (const int64_t snapshot : snapshots_of_[op.stage.value]) After(linked, snapshot);
    }
    snapshots_of_[op.stage.value].clear();
    buffers_[op.stage.value] = next_;
    return absl::OkStatus();
  }

  absl::Status ResolveSnapshot(LinkedOp& linked) {
    const Op& op = linked.op;
    const auto apply = buffers_.find(op.stage.value);
    if (apply == buffers_.end() || apply->second == kNoOp) return Missing(op, "the apply");
    linked.snapshot = apply->second;
    After(linked, apply->second);
    // After the run's last micro-batch nobody else takes the running statistics over.
    if (op.iteration.value == plan_.iterations) linked.takes = Take(buffers_, op.stage.value);
    snapshots_[{op.stage.value, op.iteration.value}] = next_;
    snapshots_of_[op.stage.value].push_back(next_);
    return absl::OkStatus();
  }

  absl::Status ResolveFold(LinkedOp& linked) {
    const Op& op = linked.op;
    After(linked, last_compute_);
    const bool first = self_.value == 0 && op.lap.value == 0;
    if (!first) {
      linked.takes = std::exchange(metrics_[IsEvaluation(op)], kNoOp);
      if (linked.takes == kNoOp) return Missing(op, "the fold so far");
      After(linked, linked.takes);
    }
    metrics_[IsEvaluation(op)] = next_;
    return absl::OkStatus();
  }

  absl::Status ResolveReport(LinkedOp& linked) {
    const bool evaluation = IsEvaluation(linked.op);
    linked.takes = std::exchange((alone() ? metrics_ : reports_)[evaluation], kNoOp);
    if (linked.takes == kNoOp) return Missing(linked.op, "the folded metrics");
    After(linked, linked.takes);
    return absl::OkStatus();
  }

  struct HeldCopy {
    Version version;
    int64_t op;
  };
  // One that stays until its release.
  struct LastingCopy {
    int64_t receive;
    int64_t last_compute = kNoOp;
    std::vector<int64_t> sends = {};
  };

  const Plan plan_;
  const WorkerId self_;
  int64_t next_ = 0;  // number of the operation being linked
  int64_t base_ = 0;  // number of linked_[0]
  std::vector<LinkedOp> linked_;

  int64_t last_compute_ = kNoOp;
  int64_t token_ = kNoOp;
  std::deque<int64_t> gradients_;                    // the last pending + 1 adds
  std::map<std::pair<int, int>, HeldCopy> copies_;   // (copy, stage) -> the receive
  std::map<std::pair<int, int>, LastingCopy> held_;  // (stage, version)
  std::map<std::pair<int, int>, int64_t> updates_;   // (stage, version) -> its update
  // (stage, version) -> the last of its readers and relays of each line that is in order
  std::map<std::pair<int, int>, std::map<std::pair<int, int>, int64_t>> uses_;
  std::map<std::pair<int, int>, int64_t> forwards_;   // (stage, lap)
  std::map<std::pair<int, int>, int64_t> backwards_;  // (stage, lap)
  std::map<std::pair<int, int>, int64_t> snapshots_;  // (stage, iteration)
  std::map<int, std::vector<int64_t>> snapshots_of_;  // stage -> snapshots of its last apply
  std::map<int, int64_t> sums_, retired_, buffers_;   // stage -> where the value is now
  std::map<int, int64_t> taken_;                      // stage -> the squares that took its sum
  std::map<std::pair<int, int>, int64_t> squares_;    // (stage, iteration) -> where they are
  std::map<int, int64_t> norms_;                      // iteration -> where the norm is
  std::map<bool, int64_t> metrics_{{false, kNoOp}, {true, kNoOp}};  // evaluation? -> the fold
  std::map<bool, int64_t> reports_{{false, kNoOp}, {true, kNoOp}};
  std::map<std::pair<int, int>, int64_t> last_sends_;       // (channel, peer) -> number + 1
  std::map<int, int64_t> kept_sums_, kept_states_;          // stage -> its newest keep
  std::map<std::tuple<int, int, int>, int64_t> collected_;  // (copy, stage, version) -> where it is
};

Linker::Linker(const Plan& plan, WorkerId self) : state_(std::make_unique<State>(plan, self)) {}
Linker::~Linker() = default;

absl::StatusOr<std::vector<LinkedOp>> Linker::Append(std::span<const Op> ops) {
  return state_->Append(ops);
}

}  // namespace ringzero
