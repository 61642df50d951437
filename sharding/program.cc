// Writes a worker's program from the schedule. (Its text: program_text.cc.)
#include "sharding/program.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "sharding/collections.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

// Appends one worker's operations, lap by lap.
class Writer {
 public:
  Writer(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {
    if (plan.stagger && !alone()) tokens_ = StaggerTokens(plan);
  }

  std::vector<Op> Take() { return std::move(ops_); }

  void WritePart(const ProgramPart& part) {
    const Iteration t = part.iteration;
    const bool closing = t.value == plan_.iterations;
    if (!plan_.exchange) {
      if (!closing) ComputeOnlyLap(t, part.lap);
      return;
    }
    // θ_t is evaluated and collected before iteration t, or after its laps.
    const bool before = plan_.updates_in_place() || closing;
    const bool first = part.lap.value == 0, last = closing || part.lap.value == plan_.laps - 1;
    if (before && first) ShowVersion(t);
    if (!closing) {
      if (first) Injections(t);
      TrainingLap({self_, t, part.lap});
      if (last) Updates(t);
    }
    if (!before && last) ShowVersion(t);
  }

 private:
  int last_worker() const { return plan_.workers - 1; }
  bool alone() const { return plan_.workers == 1; }
  bool Travels(StageId j) const { return plan_.stage(j).parameter_bytes > 0; }
  std::vector<StageId> Stages() const {
    std::vector<StageId> stages;
    for (int j = 0; j < plan_.stage_count(); ++j) stages.push_back(StageId(j));
    return stages;
  }
  std::vector<StageId> StagesBackward() const {
    std::vector<StageId> stages;
    for (int j = plan_.stage_count() - 1; j >= 0 && plan_.stages[j].has_backward; --j) {
      stages.push_back(StageId(j));
    }
    return stages;
  }
  // The stages whose backward copy is first needed by the backward of stage j: its own and those
  // tied to it; a tied stage's own backward comes later and needs no other copy.
  std::vector<StageId> BackwardCopiesAt(StageId j) const {
    std::vector<StageId> copies;
    for (const StageId i : Stages()) {
      if (plan_.last_use(i) == j && Travels(i) && HasBackwardCopy(plan_, i)) copies.push_back(i);
    }
    return copies;
  }

  void Emit(Op op) { ops_.push_back(op); }

  void ShowVersion(Iteration t) {
    if (IsEvaluated(plan_, Version(t.value))) Evaluation(t);
    AppendCollections(plan_, self_, Version(t.value), ops_);
  }

  void ComputeOnlyLap(Iteration t, Lap l) {
    const MicroBatch m{self_, t, l};
    for (const StageId j : Stages()) Compute(OpKind::kForward, m, j);
    for (const StageId j : StagesBackward()) Compute(OpKind::kBackward, m, j);
    Emit({.kind = OpKind::kEnd, .iteration = t, .lap = l});
  }

  void Compute(OpKind kind, const MicroBatch& m, StageId j) {
    Emit({.kind = kind,
          .stage = j,
          .iteration = m.iteration,
          .lap = m.lap,
          .version = ReadVersion(plan_, m, j)});
  }

  // Takes this micro-batch's copy of stage j unless it is here already, and passes it on.
  void PassCopy(const MicroBatch& m, StageId j, Copy copy) {
    if (!Travels(j)) return;
    const Channel relay = copy == Copy::kForward ? Channel::kForwardCopy : Channel::kBackwardCopy;
    const CopySource source = SourceOf(plan_, m, j);
    Op op{.copy = copy, .stage = j, .version = ReadVersion(plan_, m, j)};
    if (source.how != CopySource::How::kOwn && Comes(m, j)) {
      op.kind = OpKind::kReceive;
      op.channel = source.how == CopySource::How::kRelay ? relay : Channel::kInject;
      op.iteration = m.iteration;
      op.lap = m.lap;
      op.peer = source.from;
      Emit(op);
    }
    const std::optional<MicroBatch> next = NextMicroBatch(plan_, m);
    if (!next || SourceOf(plan_, *next, j).how != CopySource::How::kRelay) return;
    if (!Comes(*next, j)) return;
    op.kind = OpKind::kSend;
    op.channel = relay;
    op.iteration = next->iteration;
    op.lap = next->lap;
    op.peer = next->worker;
    Emit(op);
  }

  // Whether a copy comes for this micro-batch: where copies are held, for the first that reads it.
  bool Comes(const MicroBatch& m, StageId j) const {
    return !plan_.holds_copies() || IsFirstRead(plan_, m, j);
  }

  // Lets go of the copies that this operation of a lap has read last.
  void Release(OpKind kind, const MicroBatch& m, StageId j) {
    if (!plan_.holds_copies()) return;
    for (const StageId i : Stages()) {
      if (LastReadOfLap(plan_, i) != std::pair(kind, j) || !IsLastRead(plan_, m, i)) continue;
      ReleaseCopy(m.iteration, i, ReadVersion(plan_, m, i));
    }
  }
  void ReleaseCopy(Iteration t, StageId i, Version v) {
    if (!Travels(i) || plan_.has_masters(self_, i)) return;
    Emit({.kind = OpKind::kRelease, .stage = i, .iteration = t, .version = v});
  }

  void TrainingLap(const MicroBatch& m) {
    int operation = 0;
    for (const StageId j : Stages()) {
      PassCopy(m, j, Copy::kForward);
      ReceiveToken(m, operation);
      Compute(OpKind::kForward, m, j);
      SendTokens(m, operation++);
      Release(OpKind::kForward, m, j);
      RunningStatistics(m, j);
    }
    for (const StageId j : StagesBackward()) {
      for (const StageId i : BackwardCopiesAt(j)) PassCopy(m, i, Copy::kBackward);
      ReceiveToken(m, operation);
      Compute(OpKind::kBackward, m, j);
      SendTokens(m, operation++);
      Release(OpKind::kBackward, m, j);
      GradientSum(m, j);
    }
    Emit({.kind = OpKind::kEnd, .iteration = m.iteration, .lap = m.lap});
    FoldMetrics(m.iteration, m.lap, plan_.laps, Copy::kNone);
  }

  // The token that lets operation `before` of micro-batch m's lap begin; it bears that operation's
  // name.
  Op Token(OpKind kind, const MicroBatch& m, int before, WorkerId peer) const {
    const int stages = plan_.stage_count();
    const bool forward = before < stages;
    return {.kind = kind,
            .channel = Channel::kToken,
            .copy = forward ? Copy::kForward : Copy::kBackward,
            .stage = StageId(forward ? before : 2 * stages - 1 - before),
            .iteration = m.iteration,
            .lap = m.lap,
            .peer = peer};
  }

  void ReceiveToken(const MicroBatch& m, int operation) {
    const std::optional<MicroBatch> previous = PreviousMicroBatch(plan_, m);
    if (!previous) return;
    for (const StaggerToken& token : tokens_) {
      if (token.before != operation) continue;
      if (token.in_following_lap && !FollowingLap(plan_, *previous)) continue;
      Emit(Token(OpKind::kReceive, m, token.before, previous->worker));
    }
  }

  // Our lap that m follows.
  std::optional<MicroBatch> LapBefore(const MicroBatch& m) const {
    MicroBatch before = m;
    if (m.lap.value > 0) {
      before.lap = Lap(m.lap.value - 1);
    } else {
      if (m.iteration.value == 0) return std::nullopt;
      before.iteration = Iteration(m.iteration.value - 1);
      before.lap = Lap(plan_.laps - 1);
    }
    return FollowingLap(plan_, before) == m ? std::optional(before) : std::nullopt;
  }

  // To the next micro-batch; and, from a lap that follows another, to the one next to that. The
  // latter comes first in its receiver's order.
  void SendTokens(const MicroBatch& m, int operation) {
    for (auto token = tokens_.rbegin(); token != tokens_.rend(); ++token) {
      if (token->after != operation) continue;
      std::optional<MicroBatch> from = m;
      if (token->in_following_lap) from = LapBefore(m);
      if (!from) continue;
      const std::optional<MicroBatch> to = NextMicroBatch(plan_, *from);
      if (to) Emit(Token(OpKind::kSend, *to, token->before, to->worker));
    }
  }

  // The batch statistics of every micro-batch go into the running ones in micro-batch order.
  void RunningStatistics(const MicroBatch& m, StageId j) {
    if (plan_.stage(j).buffer_bytes == 0) return;
    const std::optional<MicroBatch> previous = PreviousMicroBatch(plan_, m);
    const std::optional<MicroBatch> next = NextMicroBatch(plan_, m);
    Op op{.kind = OpKind::kReceive,
          .channel = Channel::kBuffers,
          .stage = j,
          .iteration = m.iteration,
          .lap = m.lap};
    if (previous && !alone()) {
      op.peer = previous->worker;
      Emit(op);
    }
    Emit({.kind = OpKind::kApply, .stage = j, .iteration = m.iteration, .lap = m.lap});
    const int updates = m.iteration.value + 1;
    const bool last = self_.value == last_worker() && m.lap.value == plan_.laps - 1;
    if (last &&
        (IsEvaluated(plan_, Version(updates)) || !CollectionsOf(plan_, Version(updates)).empty())) {
      Emit({.kind = OpKind::kSnapshot, .stage = j, .iteration = Iteration(updates)});
      for (const WorkerId to : SnapshotReceivers(plan_, Version(updates))) {
        SendSnapshot(Iteration(updates), j, to);
      }
    }
    if (next && !alone()) {
      op.kind = OpKind::kSend;
      op.iteration = next->iteration;
      op.lap = next->lap;
      op.peer = next->worker;
      Emit(op);
    }
  }

  void SendSnapshot(Iteration t, StageId j, WorkerId to) {
    Emit({.kind = OpKind::kSend,
          .channel = Channel::kSnapshots,
          .stage = j,
          .iteration = t,
          .peer = to});
  }

  void GradientSum(const MicroBatch& m, StageId j) {
    if (plan_.stage(j).sum_bytes == 0) return;
    Op op{.channel = Channel::kSum, .stage = j, .iteration = m.iteration, .lap = m.lap};
    if (!BeginsSum(m) && !alone()) {
      op.kind = OpKind::kReceive;
      op.peer = PreviousMicroBatch(plan_, m)->worker;
      Emit(op);
    }
    Emit({.kind = OpKind::kAdd, .stage = j, .iteration = m.iteration, .lap = m.lap});
    op.kind = OpKind::kSend;
    if (CompletesSum(plan_, m)) {
      if (plan_.has_masters(self_, j)) return UpdateFrom(m.iteration, j);
      op.channel = Channel::kRetire;
      op.lap = kNoLap;
      op.peer = plan_.owner(j);
      Emit(op);
    } else if (!alone()) {
      const MicroBatch next = *NextMicroBatch(plan_, m);
      op.iteration = next.iteration;
      op.lap = next.lap;
      op.peer = next.worker;
      Emit(op);
    }
  }

  // The folds of one iteration (or evaluation) of `laps` laps, ending in a report at worker 0.
  void FoldMetrics(Iteration t, Lap l, int laps, Copy copy) {
    const bool first = self_.value == 0 && l.value == 0;
    const bool last = self_.value == last_worker() && l.value == laps - 1;
    Op op{.channel = Channel::kMetrics, .copy = copy, .iteration = t, .lap = l};
    if (!first && !alone()) {
      op.kind = OpKind::kReceive;
      op.peer = WorkerId((self_.value + plan_.workers - 1) % plan_.workers);
      Emit(op);
    }
    Emit({.kind = OpKind::kFold, .copy = copy, .iteration = t, .lap = l});
    op.kind = OpKind::kSend;
    if (!alone()) {
      op.peer = WorkerId((self_.value + 1) % plan_.workers);
      if (last) {
        op.channel = Channel::kReports;
        op.lap = kNoLap;
      } else if (op.peer.value == 0) {
        op.lap = Lap(l.value + 1);
      }
      Emit(op);
    }
    if (self_.value == 0 && l.value == laps - 1) {
      if (!alone()) {
        Emit({.kind = OpKind::kReceive,
              .channel = Channel::kReports,
              .copy = copy,
              .iteration = t,
              .peer = WorkerId(last_worker())});
      }
      Emit({.kind = OpKind::kReport, .copy = copy, .iteration = t});
    }
  }

  // What this owner sends of its stages because the previous micro-batch read another label. Only
  // the first lap may be stale: from the second on all read the same.
  void Injections(Iteration t) {
    for (int l = 0; l < std::min(plan_.laps, 2); ++l) {
      for (int w = 0; w < plan_.workers; ++w) {
        const MicroBatch m{WorkerId(w), t, Lap(l)};
        for (const StageId j : Stages()) Inject(m, j, Copy::kForward);
        for (const StageId j : StagesBackward()) {
          for (const StageId i : BackwardCopiesAt(j)) Inject(m, i, Copy::kBackward);
        }
      }
    }
  }

  void Inject(const MicroBatch& m, StageId j, Copy copy) {
    if (plan_.owner(j) != self_ || !Travels(j)) return;
    if (SourceOf(plan_, m, j).how != CopySource::How::kInject || !Comes(m, j)) return;
    Emit({.kind = OpKind::kSend,
          .channel = Channel::kInject,
          .copy = copy,
          .stage = j,
          .iteration = m.iteration,
          .lap = m.lap,
          .version = ReadVersion(plan_, m, j),
          .peer = m.worker});
  }

  // What follows the laps: the updates of stages whose sums end elsewhere, and those that need the
  // norm of this very iteration.
  void Updates(Iteration t) {
    std::vector<StageId> owned;
    for (const StageId j : StagesBackward()) {
      if (plan_.has_masters(self_, j) && plan_.stage(j).sum_bytes > 0) owned.push_back(j);
    }
    for (const StageId j : owned) {
      if (self_ == SumsEndAt(plan_)) break;  // its sums were complete within the lap
      if (!plan_.spreads_sums()) {
        Emit({.kind = OpKind::kReceive,
              .channel = Channel::kRetire,
              .stage = j,
              .iteration = t,
              .peer = SumsEndAt(plan_)});
      }
      UpdateFrom(t, j);
    }
    Norm(t);
    if (!plan_.takes_sums()) return;
    for (const StageId j : owned) Update(t, j);
  }

  // A complete sum is here. The update comes at once: what the sum lies in is used again.
  void UpdateFrom(Iteration t, StageId j) {
    if (plan_.spreads_sums()) SpreadSum(t, j);
    Squares(t, j);
    if (!plan_.takes_sums()) Update(t, j);
  }

  void Update(Iteration t, StageId j) {
    const Version made(t.value + 1);
    const bool collected =
        IsCollected(plan_, made) && KeepsFor(plan_, plan_.collection.worker, j) == self_;
    Op keep{.kind = OpKind::kKeep, .stage = j, .iteration = Iteration(made.value)};
    keep.copy = Copy::kGradient;
    if (collected) Emit(keep);
    Emit({.kind = OpKind::kUpdate, .stage = j, .iteration = t, .version = made});
    keep.copy = Copy::kState;
    if (collected && plan_.stage(j).state_bytes > 0) Emit(keep);
  }

  // A message of the norm: a stage's squares to worker 0, or (no stage) the norm from there.
  static Op NormMessage(OpKind kind, Iteration t, StageId j, WorkerId peer) {
    return {.kind = kind, .channel = Channel::kNorms, .stage = j, .iteration = t, .peer = peer};
  }

  void Squares(Iteration t, StageId j) {
    if (!plan_.counts_squares()) return;
    Emit({.kind = OpKind::kSquares, .stage = j, .iteration = t});
    const bool folds_here = self_.value == 0 || plan_.spreads_sums();
    if (plan_.has_norm() && !folds_here) Emit(NormMessage(OpKind::kSend, t, j, WorkerId(0)));
  }

  // Worker 0 folds the squares of all stages, and tells the norm to whoever updates with it. Where
  // everybody has all sums, everybody folds.
  void Norm(Iteration t) {
    if (!plan_.has_norm()) return;
    const std::vector<WorkerId> receivers = NormReceivers(plan_, t);
    if (self_.value > 0 && !plan_.spreads_sums()) {
      if (std::find(receivers.begin(), receivers.end(), self_) != receivers.end()) {
        Emit(NormMessage(OpKind::kReceive, t, kNoStage, WorkerId(0)));
      }
      return;
    }
    for (int w = 1; w < plan_.workers && !plan_.spreads_sums(); ++w) {
      for (const StageId j : StagesBackward()) {
        if (plan_.owner(j).value != w || plan_.stage(j).sum_bytes == 0) continue;
        Emit(NormMessage(OpKind::kReceive, t, j, WorkerId(w)));
      }
    }
    Emit({.kind = OpKind::kNorm, .iteration = t});
    for (const WorkerId to : receivers) Emit(NormMessage(OpKind::kSend, t, kNoStage, to));
  }

  // A complete sum goes from worker N-1, which has it, to 0, 1, … N-2.
  void SpreadSum(Iteration t, StageId j) {
    if (alone()) return;
    Op op{.channel = Channel::kFinished, .stage = j, .iteration = t};
    if (self_.value != last_worker()) {
      op.kind = OpKind::kReceive;
      op.peer = WorkerId((self_.value + last_worker()) % plan_.workers);
      Emit(op);
    }
    if (self_.value == last_worker() - 1) return;
    op.kind = OpKind::kSend;
    op.peer = WorkerId((self_.value + 1) % plan_.workers);
    Emit(op);
  }

  void Evaluation(Iteration t) {
    for (const StageId j : Stages()) {
      if (self_.value == last_worker() || t.value == 0) break;  // θ_0 has the initial statistics
      if (plan_.stage(j).buffer_bytes == 0) continue;
      ReceiveSnapshot(t, j);
      if (self_.value + 1 < last_worker()) SendSnapshot(t, j, WorkerId(self_.value + 1));
    }
    for (int l = 0; l < plan_.evaluation.laps; ++l) {
      for (const StageId j : Stages()) InjectEvaluation(t, Lap(l), j);
    }
    for (int l = 0; l < plan_.evaluation.laps; ++l) EvaluationLap(t, Lap(l));
  }

  void InjectEvaluation(Iteration t, Lap l, StageId j) {
    if (EvaluationSourceOf(plan_, WorkerId(0), j).how != CopySource::How::kInject) return;
    if (plan_.owner(j) != self_ || !Travels(j) || !ComesForEvaluation(WorkerId(0), t, l, j)) return;
    Op op = EvaluationCopy(t, l, j);
    op.kind = OpKind::kSend;
    op.channel = Channel::kInject;
    op.peer = WorkerId(0);
    Emit(op);
  }

  void ReceiveSnapshot(Iteration t, StageId j) {
    Emit({.kind = OpKind::kReceive,
          .channel = Channel::kSnapshots,
          .stage = j,
          .iteration = t,
          .peer = WorkerId((self_.value + last_worker()) % plan_.workers)});
  }

  Op EvaluationCopy(Iteration t, Lap l, StageId j) const {
    return {.copy = Copy::kEvaluation,
            .stage = j,
            .iteration = t,
            .lap = l,
            .version = VersionAfter(plan_, j, t.value)};
  }

  bool ComesForEvaluation(WorkerId w, Iteration t, Lap l, StageId j) const {
    if (!plan_.holds_copies()) return true;
    return l.value == 0 && IsFirstReadOfEvaluation(plan_, w, t, j);
  }

  void EvaluationLap(Iteration t, Lap l) {
    const WorkerId next(self_.value + 1);
    for (const StageId j : Stages()) {
      if (Travels(j)) {
        const CopySource source = EvaluationSourceOf(plan_, self_, j);
        Op op = EvaluationCopy(t, l, j);
        if (source.how != CopySource::How::kOwn && ComesForEvaluation(self_, t, l, j)) {
          op.kind = OpKind::kReceive;
          op.channel =
              source.how == CopySource::How::kRelay ? Channel::kEvaluation : Channel::kInject;
          op.peer = source.from;
          Emit(op);
        }
        if (next.value < plan_.workers && !plan_.has_masters(next, j) &&
            ComesForEvaluation(next, t, l, j)) {
          op.kind = OpKind::kSend;
          op.channel = Channel::kEvaluation;
          op.peer = next;
          Emit(op);
        }
      }
      Emit({.kind = OpKind::kEvaluate,
            .stage = j,
            .iteration = t,
            .lap = l,
            .version = VersionAfter(plan_, j, t.value)});
      for (const StageId i : Stages()) {
        const bool last = plan_.holds_copies() && plan_.last_use(i) == j &&
                          l.value == plan_.evaluation.laps - 1 &&
                          IsLastReadOfEvaluation(plan_, self_, t, i);
        if (last) ReleaseCopy(t, i, VersionAfter(plan_, i, t.value));
      }
    }
    Emit({.kind = OpKind::kEnd, .copy = Copy::kEvaluation, .iteration = t, .lap = l});
    FoldMetrics(t, l, plan_.evaluation.laps, Copy::kEvaluation);
  }

  const Plan& plan_;
  WorkerId self_;
  std::vector<StaggerToken> tokens_;
  std::vector<Op> ops_;
};

absl::Status CheckRequest(const Plan& plan, WorkerId worker, IterationRange range) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  if (worker.value < 0 || worker.value >= plan.workers) {
    return InvalidArgument("worker ", worker.value, " is not one of ", plan.workers);
  }
  if (range.begin.value < 0 || range.end.value > plan.iterations + 1) {
    return InvalidArgument("iterations ", range.begin.value, " to ", range.end.value,
                           " are not within 0 to ", plan.iterations + 1);
  }
  return absl::OkStatus();
}

}  // namespace

IterationRange WholeRun(const Plan& plan) { return {Iteration(0), Iteration(plan.iterations + 1)}; }

std::optional<ProgramPart> NextPart(const Plan& plan, const ProgramPart& part) {
  if (part.iteration.value >= plan.iterations) return std::nullopt;
  if (part.lap.value + 1 < plan.laps) return ProgramPart{part.iteration, Lap(part.lap.value + 1)};
  return ProgramPart{Iteration(part.iteration.value + 1), Lap(0)};
}

absl::StatusOr<std::vector<Op>> MakeProgramPart(const Plan& plan, WorkerId worker,
                                                const ProgramPart& part) {
  const int t = part.iteration.value, l = part.lap.value;
  RZ_RETURN_IF_ERROR(CheckRequest(plan, worker, {part.iteration, Iteration(t + 1)}));
  if (l < 0 || l >= (t == plan.iterations ? 1 : plan.laps)) {
    return InvalidArgument("iteration ", t, " has no lap ", l);
  }
  Writer writer(plan, worker);
  writer.WritePart(part);
  return writer.Take();
}

bool IsFrom(const ProgramPart& part, const Op& op) {
  if (op.iteration != part.iteration) return op.iteration > part.iteration;
  if (part.lap.value == 0) return true;
  const bool shown = op.copy == Copy::kEvaluation || op.channel == Channel::kCollection ||
                     op.channel == Channel::kStates || op.channel == Channel::kSnapshots;
  if (shown || op.lap == kNoLap) return true;
  return op.channel != Channel::kInject && op.lap >= part.lap;
}

absl::StatusOr<Program> MakeProgram(const Plan& plan, WorkerId worker, IterationRange range) {
  RZ_RETURN_IF_ERROR(CheckRequest(plan, worker, range));
  Writer writer(plan, worker);
  std::optional<ProgramPart> part = ProgramPart{range.begin, Lap(0)};
  for (; part.has_value() && part->iteration < range.end; part = NextPart(plan, *part)) {
    writer.WritePart(*part);
  }
  return Program{worker, range, writer.Take()};
}

absl::StatusOr<std::vector<Program>> MakePrograms(const Plan& plan, IterationRange range) {
  std::vector<Program> programs;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(Program program, MakeProgram(plan, WorkerId(w), range));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace ringzero
