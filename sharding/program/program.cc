// Writes a worker's program from the schedule. (Its text: op.cc.)
#include "sharding/program/program.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "sharding/program/loans.h"
#include "sharding/program/operands.h"
#include "sharding/program/requests.h"
#include "sharding/program/residency.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

constexpr MemoryBlock kStaging{.kind = BlockKind::kStaging};
MemoryBlock StateOf(StageId j) { return {.kind = BlockKind::kState, .stage = j}; }
MemoryBlock TierOf(StageId j) { return {.kind = BlockKind::kTier, .stage = j}; }
MemoryBlock SquaresOf(StageId j) { return {.kind = BlockKind::kSquares, .stage = j}; }
MemoryBlock TakenOf(StageId j) { return {.kind = BlockKind::kTaken, .stage = j}; }
MemoryBlock StatisticsOf(StageId j) { return {.kind = BlockKind::kStatistics, .stage = j}; }
MemoryBlock MetricsOf(Copy copy) { return {.kind = BlockKind::kMetrics, .copy = copy}; }
MemoryBlock ReportOf(Copy copy) { return {.kind = BlockKind::kReport, .copy = copy}; }

absl::Status CheckRequest(const Plan& plan, WorkerId worker, IterationRange range) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  if (worker.value < 0 || worker.value >= plan.workers) {
    return InvalidArgument("worker ", worker.value, " is not one of ", plan.workers);
  }
  if (range.begin.value < plan.first_iteration || range.end.value > plan.iterations + 1) {
    return InvalidArgument("iterations ", range.begin.value, " to ", range.end.value,
                           " are not within ", plan.first_iteration, " to ", plan.iterations + 1);
  }
  return absl::OkStatus();
}

// Appends one worker's operations, lap by lap.
class Writer final : public ProgramWriter {
 public:
  Writer(const Plan& plan, WorkerId self, Iteration from)
      : plan_(plan), self_(self), part_(ProgramPart{from, Lap(0)}), operands_(plan_, self) {
    if (plan.window == 0) plan_.window = LeastWindow(plan);  // blocks are named by it
    if (plan.lends()) loans_.emplace(plan_, self);
    if (plan.stagger && !alone()) tokens_ = StaggerTokens(plan);
    SortStages();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const Plan& plan() const override { return plan_; }
  void Note(const RunRequest& request) override { NoteRequest(request, plan_); }
  const std::optional<ProgramPart>& part() const override { return part_; }

  std::vector<Instruction> Next() override {
    WritePart(*part_);
    part_ = PartBehind(*part_);
    std::vector<Instruction> ops = std::exchange(ops_, {});
    if (loans_.has_value()) ops = loans_->Lower(std::move(ops));
    if (plan_.any_streams_parameters()) ops = residency_.AddLoads(part_, std::move(ops));
    return ops;
  }

 private:
  std::optional<ProgramPart> PartBehind(const ProgramPart& part) const {
    const int t = part.iteration.value;
    if (t >= plan_.iterations) return std::nullopt;
    if (part.lap.value + 1 < plan_.laps)
      return ProgramPart{part.iteration, Lap(part.lap.value + 1)};
    return ProgramPart{Iteration(t + 1), Lap(0)};
  }

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
      Injections(t, part.lap);
      TrainingLap({self_, t, part.lap});
      if (last) {
        Updates(t);
        if (IsSaved(plan_, Version(t.value + 1))) SaveVersion(Version(t.value + 1));
      }
    }
    if (!before && last) ShowVersion(t);
  }

  int last_worker() const { return plan_.workers - 1; }
  bool alone() const { return plan_.workers == 1; }
  // Whom this worker receives from around the ring, and sends to.
  WorkerId Before() const { return WorkerId((self_.value + last_worker()) % plan_.workers); }
  WorkerId Behind() const { return WorkerId((self_.value + 1) % plan_.workers); }
  bool Travels(StageId j) const { return plan_.stage(j).parameter_bytes > 0; }
  // Once, since every lap and every worker's injections go through them.
  void SortStages() {
    const auto count = static_cast<size_t>(plan_.stage_count());
    tied_to_.resize(count);
    backward_copies_at_.resize(count);
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StageId stage(j), last = plan_.last_use(stage);
      stages_.push_back(stage);
      if (last != stage) tied_to_[last.value].push_back(stage);
      if (Travels(stage) && HasBackwardCopy(plan_, stage)) {
        backward_copies_at_[last.value].push_back(stage);
      }
      if (plan_.owner(stage) == self_ && Travels(stage)) owned_.push_back(stage);
    }
    for (int j = plan_.stage_count() - 1; j >= 0 && plan_.stages[j].has_backward; --j) {
      stages_backward_.push_back(StageId(j));
      for (const StageId i : backward_copies_at_[j]) {
        if (plan_.owner(i) == self_) owned_backward_.push_back(i);
      }
    }
  }

  void Emit(const Op& op, Uses uses) { ops_.emplace_back(op, std::move(uses)); }
  void Receive(Op op, const MemoryBlock& into) {
    op.kind = OpKind::kReceive;
    Emit(op, {Writing(Role::kTarget, into)});
  }
  void Send(Op op, const MemoryBlock& from) {
    op.kind = OpKind::kSend;
    Emit(op, {Reading(Role::kSource, from)});
  }
  // A message that another micro-batch uses: it bears that one's name.
  static Op For(const MicroBatch& m, Op message) {
    message.iteration = m.iteration;
    message.lap = m.lap;
    message.peer = m.worker;
    return message;
  }
  // A copy of parameters, from where this worker has it.
  void SendCopy(const Op& op) {
    Send(op, operands_.Parameters(op.stage, op.version, op.copy)[0].block);
  }

  void ShowVersion(Iteration t) {
    if (IsEvaluated(plan_, Version(t.value))) Evaluation(t);
    AppendCollections(plan_, self_, Version(t.value), operands_, ops_);
  }

  void ComputeOnlyLap(Iteration t, Lap l) {
    const MicroBatch m{self_, t, l};
    for (const StageId j : stages_) Compute(OpKind::kForward, m, j, {});
    for (const StageId j : stages_backward_) Compute(OpKind::kBackward, m, j, {});
    Emit({.kind = OpKind::kEnd, .iteration = t, .lap = l}, {});
  }

  void Compute(OpKind kind, const MicroBatch& m, StageId j, Uses others) {
    const Copy copy = kind == OpKind::kForward ? Copy::kForward : Copy::kBackward;
    Uses uses = Parameters(j, copy, [&](StageId i) { return ReadVersion(rule_, m, i); });
    uses.insert(uses.end(), others.begin(), others.end());
    Emit({.kind = kind,
          .stage = j,
          .iteration = m.iteration,
          .lap = m.lap,
          .version = ReadVersion(rule_, m, j)},
         std::move(uses));
  }

  // What computing stage j reads: its own parameters, and those of stages tied to it.
  template <typename VersionOf>
  Uses Parameters(StageId j, Copy copy, VersionOf version) const {
    Uses uses = operands_.Parameters(j, version(j), copy);
    for (const StageId i : tied_to_[j.value]) {
      const Uses tied = operands_.Parameters(i, version(i), copy);
      uses.insert(uses.end(), tied.begin(), tied.end());
    }
    return uses;
  }

  // Takes this micro-batch's copy of stage j unless it is here already, and passes it on.
  void PassCopy(const MicroBatch& m, StageId j, Copy copy) {
    if (!Travels(j)) return;
    const Channel relay = copy == Copy::kForward ? Channel::kForwardCopy : Channel::kBackwardCopy;
    const CopySource source = SourceOf(rule_, m, j);
    Op op{.copy = copy,
          .stage = j,
          .iteration = m.iteration,
          .lap = m.lap,
          .version = ReadVersion(rule_, m, j)};
    if (source.how != CopySource::How::kOwn && Comes(m, j)) {
      op.channel = source.how == CopySource::How::kRelay ? relay : Channel::kInject;
      op.peer = source.from;
      Receive(op, operands_.ReceivedCopy(op));
    }
    const std::optional<MicroBatch> next = NextMicroBatch(plan_, m);
    if (!next || SourceOf(rule_, *next, j).how != CopySource::How::kRelay) return;
    if (!Comes(*next, j)) return;
    op.channel = relay;
    SendCopy(For(*next, op));
  }

  // Whether a copy comes for this micro-batch: where copies are held, for the first that reads it.
  bool Comes(const MicroBatch& m, StageId j) const {
    return !plan_.holds_copies() || IsFirstRead(rule_, m, j);
  }

  // Lets go of the copies that this operation of a lap has read last.
  void Release(OpKind kind, const MicroBatch& m, StageId j) {
    if (!plan_.holds_copies()) return;
    for (const StageId i : stages_) {
      if (LastReadOfLap(plan_, i) != std::pair(kind, j) || !IsLastRead(rule_, m, i)) continue;
      ReleaseCopy(m.iteration, i, ReadVersion(rule_, m, i));
    }
  }
  void ReleaseCopy(Iteration t, StageId i, Version v) {
    if (!Travels(i) || plan_.has_masters(self_, i)) return;
    Emit({.kind = OpKind::kRelease, .stage = i, .iteration = t, .version = v},
         {Writing(Role::kTarget, operands_.HeldCopy(i, v))});
  }

  void TrainingLap(const MicroBatch& m) {
    int operation = 0;
    for (const StageId j : stages_) {
      PassCopy(m, j, Copy::kForward);
      ComputeWithTokens(OpKind::kForward, m, j, operation++);
      Release(OpKind::kForward, m, j);
      RunningStatistics(m, j);
    }
    for (const StageId j : stages_backward_) {
      for (const StageId i : backward_copies_at_[j.value]) PassCopy(m, i, Copy::kBackward);
      ComputeWithTokens(OpKind::kBackward, m, j, operation++);
      Release(OpKind::kBackward, m, j);
      GradientSum(m, j);
    }
    Emit({.kind = OpKind::kEnd, .iteration = m.iteration, .lap = m.lap},
         {Writing(Role::kLosses, operands_.Losses(Copy::kNone))});
    FoldMetrics(m.iteration, m.lap, plan_.laps, Copy::kNone);
  }

  // An operation of a lap, behind the token that it waits for and before those that wait for it.
  void ComputeWithTokens(OpKind kind, const MicroBatch& m, StageId j, int operation) {
    Uses uses;
    if (kind == OpKind::kBackward) {
      if (plan_.stage(j).sum_bytes > 0) {
        uses.push_back(Writing(Role::kGradient, operands_.Gradient()));
      }
    } else {
      if (plan_.stage(j).buffer_bytes > 0) {
        uses.push_back(Writing(Role::kBatchStatistics, operands_.BatchStatistics(j)));
      }
      // An iteration begins when its loss scale is known.
      const int norm = m.iteration.value - plan_.scale_lag(m.iteration);
      const bool begins = j.value == 0 && m.lap.value == 0;
      if (plan_.skips() && begins && norm >= 0) uses.push_back(Reading(Role::kNorm, NormOf(norm)));
    }
    if (const std::optional<MemoryBlock> token = ReceiveToken(m, operation)) {
      uses.push_back(Reading(Role::kToken, *token));
    }
    const std::vector<Instruction> sends = TokensAfter(m, operation);
    for (const Instruction& send : sends) uses.push_back(Writing(Role::kClock, send.uses[0].block));
    Compute(kind, m, j, std::move(uses));
    ops_.insert(ops_.end(), sends.begin(), sends.end());
  }

  // The token that lets operation `before` of micro-batch m's lap begin; it bears that operation's
  // name.
  Op Token(const MicroBatch& m, int before, WorkerId peer) const {
    const int stages = plan_.stage_count();
    const bool forward = before < stages;
    return {.channel = Channel::kToken,
            .copy = forward ? Copy::kForward : Copy::kBackward,
            .stage = StageId(forward ? before : 2 * stages - 1 - before),
            .iteration = m.iteration,
            .lap = m.lap,
            .peer = peer};
  }

  // What operation `operation` of the lap waits for, if anything.
  std::optional<MemoryBlock> ReceiveToken(const MicroBatch& m, int operation) {
    const std::optional<MicroBatch> previous = PreviousMicroBatch(plan_, m);
    if (!previous) return std::nullopt;
    for (const StaggerToken& token : tokens_) {
      if (token.before != operation) continue;
      if (token.in_following_lap && !FollowingLap(plan_, *previous)) return std::nullopt;
      const MemoryBlock block = operands_.NextToken(BlockKind::kToken, token.before);
      Receive(Token(m, token.before, previous->worker), block);
      return block;
    }
    return std::nullopt;
  }

  // Our lap that m follows.
  std::optional<MicroBatch> LapBefore(const MicroBatch& m) const {
    const auto& [w, t, l] = m;
    if (l.value == 0 && t.value == plan_.first_iteration) return std::nullopt;
    const MicroBatch before = l.value > 0
                                  ? MicroBatch{w, t, Lap(l.value - 1)}
                                  : MicroBatch{w, Iteration(t.value - 1), Lap(plan_.laps - 1)};
    return FollowingLap(plan_, before) == m ? std::optional(before) : std::nullopt;
  }

  // To the next micro-batch; and, from a lap that follows another, to the one next to that. The
  // latter comes first in its receiver's order.
  std::vector<Instruction> TokensAfter(const MicroBatch& m, int operation) {
    std::vector<Instruction> sends;
    for (auto token = tokens_.rbegin(); token != tokens_.rend(); ++token) {
      if (token->after != operation) continue;
      std::optional<MicroBatch> from = m;
      if (token->in_following_lap) from = LapBefore(m);
      if (!from) continue;
      const std::optional<MicroBatch> to = NextMicroBatch(plan_, *from);
      if (!to) continue;
      Op send = Token(*to, token->before, to->worker);
      send.kind = OpKind::kSend;
      const MemoryBlock clock = operands_.NextToken(BlockKind::kClock, token->before);
      sends.emplace_back(send, Uses{Reading(Role::kSource, clock)});
    }
    return sends;
  }

  // The batch statistics of every micro-batch go into the running ones in micro-batch order.
  void RunningStatistics(const MicroBatch& m, StageId j) {
    if (plan_.stage(j).buffer_bytes == 0) return;
    const std::optional<MicroBatch> previous = PreviousMicroBatch(plan_, m);
    const std::optional<MicroBatch> next = NextMicroBatch(plan_, m);
    Op op{.channel = Channel::kBuffers, .stage = j, .iteration = m.iteration, .lap = m.lap};
    if (previous && !alone()) {
      op.peer = previous->worker;
      Receive(op, StatisticsOf(j));
    }
    Emit({.kind = OpKind::kApply, .stage = j, .iteration = m.iteration, .lap = m.lap},
         {Reading(Role::kBatchStatistics, operands_.BatchStatistics(j)),
          Changing(Role::kStatistics, StatisticsOf(j))});
    operands_.NextBatchStatistics(j);
    const Version made(m.iteration.value + 1);
    const bool last = self_.value == last_worker() && m.lap.value == plan_.laps - 1;
    const bool needed = IsEvaluated(plan_, made) || IsSaved(plan_, made);
    if (last && (needed || !CollectionsOf(plan_, made).empty())) {
      Emit({.kind = OpKind::kSnapshot, .stage = j, .iteration = Iteration(made.value)},
           {Reading(Role::kStatistics, StatisticsOf(j)),
            Writing(Role::kSnapshot, operands_.Snapshot(j, made))});
      for (const WorkerId to : SnapshotReceivers(plan_, made)) SendSnapshot(made, j, to);
    }
    if (next && !alone()) Send(For(*next, op), StatisticsOf(j));
  }

  void SendSnapshot(Version v, StageId j, WorkerId to) {
    Send({.channel = Channel::kSnapshots, .stage = j, .iteration = Iteration(v.value), .peer = to},
         operands_.Snapshot(j, v));
  }

  void GradientSum(const MicroBatch& m, StageId j) {
    if (plan_.stage(j).sum_bytes == 0) return;
    Op op{.channel = Channel::kSum, .stage = j, .iteration = m.iteration, .lap = m.lap};
    const bool begins = BeginsSum(m);
    if (begins) {
      operands_.BegunSum(j);
    } else if (!alone()) {
      const bool was_parked = self_.value == 0 && IsParked(plan_, m.iteration, j);
      op.peer = was_parked ? plan_.owner(j) : PreviousMicroBatch(plan_, m)->worker;
      Receive(op, operands_.ReceivedSum(op));
    }
    const MemoryBlock sum = operands_.Sum(j);
    Emit({.kind = OpKind::kAdd, .stage = j, .iteration = m.iteration, .lap = m.lap},
         {Reading(Role::kGradient, operands_.Gradient()),
          begins ? Writing(Role::kSum, sum) : Changing(Role::kSum, sum)});
    operands_.NextGradient();
    if (self_ == SumsEndAt(plan_) && m.lap.value == plan_.laps - 1) {
      if (plan_.has_masters(self_, j)) return UpdateFrom(m.iteration, j);
      op.channel = Channel::kRetire;
      op.lap = kNoLap;
      op.peer = plan_.owner(j);
      Send(op, sum);
    } else if (!alone()) {
      const bool parks = self_ == SumsEndAt(plan_) && IsParked(plan_, m.iteration, j);
      Send(parks ? ParkedSum(m, j, plan_.owner(j)) : For(*NextMicroBatch(plan_, m), op), sum);
      PassParkedSum(m, j);
    }
  }

  // What the lap that ends with m has summed, on its way to its owner.
  static Op ParkedSum(const MicroBatch& m, StageId j, WorkerId peer) {
    return {.channel = Channel::kRetire,
            .stage = j,
            .iteration = m.iteration,
            .lap = m.lap,
            .peer = peer};
  }

  // It comes to its owner, and goes on to worker 0's next lap.
  void PassParkedSum(const MicroBatch& m, StageId j) {
    if (m.lap.value + 1 == plan_.laps || plan_.owner(j) != self_) return;
    if (!IsParked(plan_, m.iteration, j)) return;
    const Op parked = ParkedSum(m, j, SumsEndAt(plan_));
    const MemoryBlock block = operands_.Slot(parked.channel, parked.peer);
    Receive(parked, block);
    Send({.channel = Channel::kSum,
          .stage = j,
          .iteration = m.iteration,
          .lap = Lap(m.lap.value + 1),
          .peer = WorkerId(0)},
         block);
  }

  // The folds of one iteration (or evaluation) of `laps` laps, ending in a report at worker 0.
  void FoldMetrics(Iteration t, Lap l, int laps, Copy copy) {
    const bool first = self_.value == 0 && l.value == 0;
    const bool last = self_.value == last_worker() && l.value == laps - 1;
    const MemoryBlock metrics = MetricsOf(copy);
    Op op{.channel = Channel::kMetrics, .copy = copy, .iteration = t, .lap = l};
    if (!first && !alone()) {
      op.peer = Before();
      Receive(op, metrics);
    }
    Emit({.kind = OpKind::kFold, .copy = copy, .iteration = t, .lap = l},
         {Reading(Role::kLosses, operands_.Losses(copy)),
          first ? Writing(Role::kFold, metrics) : Changing(Role::kFold, metrics)});
    operands_.NextLosses(copy);
    if (!alone()) {
      op.peer = Behind();
      if (last) {
        op.channel = Channel::kReports;
        op.lap = kNoLap;
      } else if (op.peer.value == 0) {
        op.lap = Lap(l.value + 1);
      }
      Send(op, metrics);
    }
    if (self_.value == 0 && l.value == laps - 1) {
      const MemoryBlock report = alone() ? metrics : ReportOf(copy);
      if (!alone()) {
        Receive({.channel = Channel::kReports, .copy = copy, .iteration = t, .peer = Before()},
                report);
      }
      Emit({.kind = OpKind::kReport, .copy = copy, .iteration = t}, {Reading(Role::kFold, report)});
    }
  }

  // What this owner sends of its stages for lap l of other workers. Only the first lap may be
  // stale: from the second on all read the same. Later laps have injections where laps end at
  // owners.
  void Injections(Iteration t, Lap l) {
    if (l.value > 1 && !plan_.ends_laps_at_owners(t)) return;
    const int workers = l.value > 1 ? 1 : plan_.workers;
    for (int w = 0; w < workers; ++w) {
      const MicroBatch m{WorkerId(w), t, l};
      for (const StageId j : owned_) Inject(m, j, Copy::kForward);
      for (const StageId j : owned_backward_) Inject(m, j, Copy::kBackward);
    }
  }

  void Inject(const MicroBatch& m, StageId j, Copy copy) {
    if (SourceOf(rule_, m, j).how != CopySource::How::kInject || !Comes(m, j)) return;
    SendCopy({.channel = Channel::kInject,
              .copy = copy,
              .stage = j,
              .iteration = m.iteration,
              .lap = m.lap,
              .version = ReadVersion(rule_, m, j),
              .peer = m.worker});
  }

  // What follows the laps: the updates of stages whose sums end elsewhere, and those that need the
  // norm of this very iteration.
  void Updates(Iteration t) {
    std::vector<StageId> owned;
    for (const StageId j : stages_backward_) {
      if (plan_.has_masters(self_, j) && plan_.stage(j).sum_bytes > 0) owned.push_back(j);
    }
    for (const StageId j : owned) {
      if (self_ == SumsEndAt(plan_)) break;  // its sums were complete within the lap
      if (!plan_.spreads_sums()) {
        const Op retire{
            .channel = Channel::kRetire, .stage = j, .iteration = t, .peer = SumsEndAt(plan_)};
        Receive(retire, operands_.ReceivedSum(retire));
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
    const bool collected = IsCollected(plan_, made) && !plan_.collection.parameters_only &&
                           KeepsFor(plan_, plan_.collection.worker, j) == self_;
    const bool streams = plan_.stage(j).streams();
    const auto keep = [&](Copy part, const Use& what) {
      Uses uses = {what, Writing(Role::kKept, operands_.Kept(part, j, made))};
      if (streams && part == Copy::kState) uses.push_back(Reading(Role::kTier, TierOf(j)));
      Emit({.kind = OpKind::kKeep, .copy = part, .stage = j, .iteration = Iteration(made.value)},
           std::move(uses));
    };
    if (collected) keep(Copy::kGradient, Reading(Role::kSum, operands_.Sum(j)));
    const auto move = [&](OpKind kind, Uses uses) {
      if (streams) Emit({.kind = kind, .stage = j, .iteration = t}, std::move(uses));
    };
    const auto between_file = [&](OpKind kind, Version v) {
      const MemoryBlock file = VersionBlock(plan_, j, v);
      if (!LiesInFile(plan_, file)) return;
      const MemoryBlock slot = MadeSlot(plan_, file.kind);
      const bool loads = kind == OpKind::kLoad;
      Emit({.kind = kind, .stage = j, .iteration = t, .version = v},
           {Reading(Role::kSource, loads ? file : slot),
            Writing(Role::kTarget, loads ? slot : file)});
    };
    move(OpKind::kFetch, {Reading(Role::kTier, TierOf(j)), Writing(Role::kStaged, kStaging)});
    if (plan_.stage(j).master_bytes == 0) between_file(OpKind::kLoad, Version(t.value));
    Emit({.kind = OpKind::kUpdate, .stage = j, .iteration = t, .version = made}, UpdateUses(t, j));
    move(OpKind::kStore, {Reading(Role::kStaged, kStaging), Writing(Role::kTier, TierOf(j))});
    between_file(OpKind::kUnload, made);
    if (MakesPrediction(plan_, j, t)) between_file(OpKind::kUnload, Prediction(t.value + 2));
    if (!collected || plan_.stage(j).state_bytes == 0) return;
    keep(Copy::kState, Reading(Role::kState, StateOf(j)));
  }

  // What this worker writes of a version, one after the other; and, at worker 0, the end of it.
  void SaveVersion(Version v) {
    const MemoryBlock receipt{.kind = BlockKind::kReceipt};
    const Iteration t(v.value);
    bool first = true;
    const auto save = [&](StageId j, Copy part, Uses uses) {
      uses.push_back(std::exchange(first, false) ? Writing(Role::kReceipt, receipt)
                                                 : Changing(Role::kReceipt, receipt));
      Emit({.kind = OpKind::kSave, .copy = part, .stage = j, .iteration = t}, std::move(uses));
    };
    // In the order of their updates: each has a whole iteration until its next.
    for (size_t i = owned_.size(); i-- > 0;) save(owned_[i], Copy::kNone, SavedUses(owned_[i], v));
    for (const StageId j : stages_) {
      if (self_.value != last_worker() || plan_.stage(j).buffer_bytes == 0) continue;
      save(j, Copy::kCollection, {Reading(Role::kSaved, operands_.Snapshot(j, v))});
    }
    Op op{.channel = Channel::kReceipts, .iteration = t, .peer = WorkerId(0)};
    if (self_.value > 0) {
      if (!first) Send(op, receipt);
      return;
    }
    Uses receipts;
    if (!first) receipts.push_back(Reading(Role::kReceipt, receipt));
    for (int w = 1; w < plan_.workers; ++w) {
      if (!Saves(plan_, WorkerId(w))) continue;
      op.peer = WorkerId(w);
      const MemoryBlock slot = operands_.Slot(op.channel, op.peer);
      Receive(op, slot);
      receipts.push_back(Reading(Role::kReceipt, slot));
    }
    if (plan_.has_norm()) receipts.push_back(Reading(Role::kNorm, NormOf(v.value - 1)));
    Emit({.kind = OpKind::kCommit, .iteration = t}, std::move(receipts));
  }

  Uses SavedUses(StageId j, Version v) const {
    Uses uses;
    for (const Version label : SavedVersions(plan_, j, v)) {
      const bool newest = label == VersionAfter(plan_, j, v.value);
      if (newest && plan_.stage(j).streams_masters) continue;  // with the state
      uses.push_back(Reading(
          Role::kSaved, newest ? MastersBlock(plan_, j, label) : VersionBlock(plan_, j, label)));
    }
    if (plan_.stage(j).sum_bytes > 0) uses.push_back(Reading(Role::kSaved, StateOf(j)));
    if (plan_.stage(j).streams()) uses.push_back(Reading(Role::kSaved, TierOf(j)));
    return uses;
  }

  Uses UpdateUses(Iteration t, StageId j) const {
    const MemoryBlock sum = operands_.Sum(j);
    // A finished sum is passed on besides.
    const bool shared = plan_.spreads_sums() && !plan_.takes_sums();
    Uses uses = {shared ? Reading(Role::kSum, sum) : Changing(Role::kSum, sum),
                 Changing(Role::kState, StateOf(j))};
    if (plan_.stage(j).streams()) uses.push_back(Changing(Role::kStaged, kStaging));
    const bool apart = !plan_.stage(j).streams_masters;  // of the state
    const auto in_memory = [&](const MemoryBlock& block) {
      return LiesInFile(plan_, block) ? MadeSlot(plan_, block.kind) : block;
    };
    const MemoryBlock before = in_memory(MastersBlock(plan_, j, Version(t.value)));
    const MemoryBlock made = in_memory(VersionBlock(plan_, j, Version(t.value + 1)));
    const MemoryBlock masters = in_memory(MastersBlock(plan_, j, Version(t.value + 1)));
    if (before != masters && apart) uses.push_back(Reading(Role::kBefore, before));
    const auto make = [&](Role role, const MemoryBlock& block) {
      uses.push_back(block == before ? Changing(role, block) : Writing(role, block));
    };
    make(Role::kMade, made);
    if (masters != made && apart) make(Role::kMasters, masters);
    if (MakesPrediction(plan_, j, t)) {
      const MemoryBlock prediction = VersionBlock(plan_, j, Prediction(t.value + 2));
      uses.push_back(Writing(Role::kPrediction, in_memory(prediction)));
    }
    const int norm = plan_.norm_iteration(t.value);
    if (plan_.has_norm() && norm >= 0) uses.push_back(Reading(Role::kNorm, NormOf(norm)));
    if (plan_.counts_squares() && !plan_.has_norm()) {
      uses.push_back(Reading(Role::kSquares, SquaresOf(j)));
    }
    return uses;
  }

  MemoryBlock NormOf(int iteration) const {
    const int blocks = BlocksOf(plan_, BlockKind::kNorm, Channel::kNone);
    return {.kind = BlockKind::kNorm, .index = iteration % blocks};
  }

  // A message of the norm: a stage's squares to worker 0, or (no stage) the norm from there.
  static Op NormMessage(Iteration t, StageId j, WorkerId peer) {
    return {.channel = Channel::kNorms, .stage = j, .iteration = t, .peer = peer};
  }

  void Squares(Iteration t, StageId j) {
    if (!plan_.counts_squares()) return;
    Uses uses = {Reading(Role::kSum, operands_.Sum(j)), Writing(Role::kSquares, SquaresOf(j))};
    if (plan_.takes_sums()) {
      uses.push_back(Writing(Role::kTaken, TakenOf(j)));
      operands_.MoveSum(j, TakenOf(j));
    }
    Emit({.kind = OpKind::kSquares, .stage = j, .iteration = t}, std::move(uses));
    const bool folds_here = self_.value == 0 || plan_.spreads_sums();
    if (plan_.has_norm() && !folds_here) Send(NormMessage(t, j, WorkerId(0)), SquaresOf(j));
  }

  // Worker 0 folds the squares of all stages, and tells the norm to whoever updates with it. Where
  // everybody has all sums, everybody folds.
  void Norm(Iteration t) {
    if (!plan_.has_norm()) return;
    const std::vector<WorkerId> receivers = NormReceivers(plan_, t);
    const MemoryBlock norm = NormOf(t.value);
    if (self_.value > 0 && !plan_.spreads_sums()) {
      if (std::find(receivers.begin(), receivers.end(), self_) != receivers.end()) {
        Receive(NormMessage(t, kNoStage, WorkerId(0)), norm);
      }
      return;
    }
    for (int w = 1; w < plan_.workers && !plan_.spreads_sums(); ++w) {
      for (const StageId j : stages_backward_) {
        if (plan_.owner(j).value != w || plan_.stage(j).sum_bytes == 0) continue;
        Receive(NormMessage(t, j, WorkerId(w)), SquaresOf(j));
      }
    }
    Uses uses;
    for (const StageId j : stages_) {
      if (plan_.stage(j).sum_bytes > 0) uses.push_back(Reading(Role::kSquares, SquaresOf(j)));
    }
    uses.push_back(Writing(Role::kNorm, norm));
    Emit({.kind = OpKind::kNorm, .iteration = t}, std::move(uses));
    for (const WorkerId to : receivers) Send(NormMessage(t, kNoStage, to), norm);
  }

  // A complete sum goes from worker N-1, which has it, to 0, 1, … N-2.
  void SpreadSum(Iteration t, StageId j) {
    if (alone()) return;
    Op op{.channel = Channel::kFinished, .stage = j, .iteration = t};
    if (self_.value != last_worker()) {
      op.peer = Before();
      Receive(op, operands_.ReceivedSum(op));
    }
    if (self_.value == last_worker() - 1) return;
    op.peer = Behind();
    Send(op, operands_.Sum(j));
  }

  void Evaluation(Iteration t) {
    for (const StageId j : stages_) {
      // The first version has the initial statistics.
      if (self_.value == last_worker() || t.value == plan_.first_iteration) break;
      if (plan_.stage(j).buffer_bytes == 0) continue;
      Receive({.channel = Channel::kSnapshots, .stage = j, .iteration = t, .peer = Before()},
              operands_.Snapshot(j, Version(t.value)));
      const WorkerId next(self_.value + 1);
      if (next.value < last_worker()) SendSnapshot(Version(t.value), j, next);
    }
    for (int l = 0; l < plan_.evaluation.laps; ++l) {
      for (const StageId j : owned_) InjectEvaluation(t, Lap(l), j);
    }
    for (int l = 0; l < plan_.evaluation.laps; ++l) EvaluationLap(t, Lap(l));
  }

  void InjectEvaluation(Iteration t, Lap l, StageId j) {
    if (EvaluationSourceOf(plan_, WorkerId(0), j).how != CopySource::How::kInject) return;
    if (!ComesForEvaluation(WorkerId(0), t, l, j)) return;
    Op op = EvaluationCopy(t, l, j);
    op.channel = Channel::kInject;
    op.peer = WorkerId(0);
    SendCopy(op);
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
    return l.value == 0 && IsFirstReadOfEvaluation(rule_, w, t, j);
  }

  void EvaluationLap(Iteration t, Lap l) {
    for (const StageId j : stages_) {
      if (Travels(j)) PassEvaluationCopy(t, l, j);
      const auto version = [&](StageId i) { return VersionAfter(plan_, i, t.value); };
      Uses uses = Parameters(j, Copy::kEvaluation, version);
      if (plan_.stage(j).buffer_bytes > 0 && t.value > plan_.first_iteration) {
        uses.push_back(Reading(Role::kSnapshot, operands_.Snapshot(j, Version(t.value))));
      }
      Emit({.kind = OpKind::kEvaluate, .stage = j, .iteration = t, .lap = l, .version = version(j)},
           std::move(uses));
      for (const StageId i : stages_) {
        const bool last = plan_.holds_copies() && plan_.last_use(i) == j &&
                          l.value == plan_.evaluation.laps - 1 &&
                          IsLastReadOfEvaluation(rule_, self_, t, i);
        if (last) ReleaseCopy(t, i, version(i));
      }
    }
    Emit({.kind = OpKind::kEnd, .copy = Copy::kEvaluation, .iteration = t, .lap = l},
         {Writing(Role::kLosses, operands_.Losses(Copy::kEvaluation))});
    FoldMetrics(t, l, plan_.evaluation.laps, Copy::kEvaluation);
  }

  void PassEvaluationCopy(Iteration t, Lap l, StageId j) {
    const CopySource source = EvaluationSourceOf(plan_, self_, j);
    Op op = EvaluationCopy(t, l, j);
    if (source.how != CopySource::How::kOwn && ComesForEvaluation(self_, t, l, j)) {
      op.channel = source.how == CopySource::How::kRelay ? Channel::kEvaluation : Channel::kInject;
      op.peer = source.from;
      Receive(op, operands_.ReceivedCopy(op));
    }
    const WorkerId next(self_.value + 1);
    if (next.value >= plan_.workers || plan_.has_masters(next, j)) return;
    if (!ComesForEvaluation(next, t, l, j)) return;
    op.channel = Channel::kEvaluation;
    op.peer = next;
    SendCopy(op);
  }

  Plan plan_;
  const UpdateRule rule_{plan_};
  const WorkerId self_;
  std::optional<ProgramPart> part_;
  std::vector<StaggerToken> tokens_;
  // In model order; in the order of backwards; of this worker, those whose parameters travel, and
  // those in the order in which backwards need their copies.
  std::vector<StageId> stages_, stages_backward_, owned_, owned_backward_;
  // By stage j: the stages tied to it, and those whose backward copy its backward needs first, its
  // own and those tied to it: a tied stage's own backward comes later and needs no other copy.
  std::vector<std::vector<StageId>> tied_to_, backward_copies_at_;
  Operands operands_;
  std::vector<Instruction> ops_;
  std::optional<LoanWriter> loans_;  // nothing is lent without
  Residency residency_{plan_, self_};
};

}  // namespace

IterationRange WholeRun(const Plan& plan) {
  return {Iteration(plan.first_iteration), Iteration(plan.iterations + 1)};
}

absl::StatusOr<std::unique_ptr<ProgramWriter>> ProgramWriter::Create(const Plan& plan,
                                                                     WorkerId worker,
                                                                     Iteration from) {
  RZ_RETURN_IF_ERROR(CheckRequest(plan, worker, {from, Iteration(from.value + 1)}));
  return std::make_unique<Writer>(plan, worker, from);
}

bool IsFrom(const ProgramPart& part, const Op& op) {
  if (op.iteration != part.iteration) return op.iteration > part.iteration;
  if (part.lap.value == 0) return true;
  const bool shown = op.copy == Copy::kEvaluation || op.channel == Channel::kCollection ||
                     op.channel == Channel::kStates || op.channel == Channel::kSnapshots;
  if (shown || op.lap == kNoLap) return true;
  return op.lap >= part.lap;
}

absl::StatusOr<Program> MakeProgram(const Plan& plan, WorkerId worker, IterationRange range) {
  RZ_RETURN_IF_ERROR(CheckRequest(plan, worker, range));
  Program program{worker, range, {}};
  if (range.begin == range.end) return program;
  RZ_ASSIGN_OR_RETURN(const auto writer, ProgramWriter::Create(plan, worker, range.begin));
  while (writer->part().has_value() && writer->part()->iteration < range.end) {
    std::vector<Instruction> part = writer->Next();
    if (program.ops.empty()) {  // the others are about as long
      program.ops.reserve(part.size() * plan.laps * (range.end.value - range.begin.value));
    }
    std::move(part.begin(), part.end(), std::back_inserter(program.ops));
  }
  return program;
}

}  // namespace ringzero
