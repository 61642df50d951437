// Local checks of what each linked operation takes, reads and waits for.
#include "sharding/dataflow.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/held_copies.h"
#include "sharding/label.h"
#include "sharding/obligations.h"

namespace ringzero {
namespace {

class DataflowChecker {
 public:
  DataflowChecker(const Plan& plan, const LinkedRing& ring)
      : plan_(plan), ring_(ring), taken_by_(ring.count(), -1) {
    if (plan.stagger && plan.workers > 1) stagger_ = StaggerWaits(plan);
    for (int i = 0; i < ring.count(); ++i) {
      if (ring.ops[i].takes >= 0) taken_by_[ring.ops[i].takes] = i;
      const Op& op = ring.op(i);
      if (op.kind == OpKind::kKeep && op.copy == Copy::kState) {
        keeps_[{ring.worker_of(i), op.stage.value, op.iteration.value}] = i;
      }
    }
  }

  absl::Status Check() {
    for (int i = 0; i < ring_.count(); ++i) RZ_RETURN_IF_ERROR(CheckOp(i));
    return absl::OkStatus();
  }

 private:
  const LinkedOp& linked(int64_t i) const { return ring_.ops[i]; }
  const Op& op(int64_t i) const { return ring_.ops[i].op; }
  bool alone() const { return plan_.workers == 1; }
  // The token before this operation of micro-batch m; null: it has none.
  const StaggerWait* TokenBefore(OpKind kind, StageId j, int64_t m) const {
    for (const StaggerWait& wait : stagger_) {
      if (wait.begins.kind == kind && wait.begins.stage == j) {
        return HasStaggerToken(plan_, wait, m) ? &wait : nullptr;
      }
    }
    return nullptr;
  }
  absl::Status Wrong(int i, const std::string& what) const {
    return FailedPrecondition(ring_.Describe(i), ": ", what);
  }

  absl::Status CheckOp(int i) {
    switch (op(i).kind) {
      case OpKind::kForward:
      case OpKind::kBackward:
      case OpKind::kEvaluate: return CheckReads(i);
      case OpKind::kCollect: return op(i).copy == Copy::kNone ? CheckReads(i) : CheckCollected(i);
      case OpKind::kSend: return CheckSend(i);
      case OpKind::kReceive: return CheckReceive(i);
      case OpKind::kAdd: return CheckAdd(i);
      case OpKind::kApply: return CheckApply(i);
      case OpKind::kFold: return CheckFold(i);
      case OpKind::kUpdate: return CheckUpdate(i);
      case OpKind::kReport: return CheckReport(i);
      case OpKind::kSnapshot: return CheckSnapshot(i);
      case OpKind::kKeep: return CheckKeep(i);
      case OpKind::kSquares: return CheckSquares(i);
      case OpKind::kNorm: return CheckNorm(i);
      case OpKind::kRelease:
      case OpKind::kEnd: break;
    }
    return absl::OkStatus();
  }

  // The micro-batch of an operation of a training lap.
  int64_t MicroBatchOf(int i) const {
    return NumberOf(plan_, {ring_.worker_of(i), op(i).iteration.value, op(i).lap.value});
  }
  // The micro-batch that uses a message of a training lap: it is named by its receiver's use.
  int64_t UserOf(int send) const {
    const Op& name = op(send);
    return NumberOf(plan_, {name.peer.value, name.iteration.value, name.lap.value});
  }

  // Whether operation `found` is an `kind` of micro-batch m for the same stage.
  bool Is(int64_t found, OpKind kind, StageId stage, int64_t m) const {
    return found >= 0 && op(found).kind == kind && op(found).stage == stage &&
           op(found).copy == Copy::kNone && MicroBatchOf(static_cast<int>(found)) == m;
  }
  bool IsReceive(int64_t found, const Op& of, Channel channel) const {
    return found >= 0 && op(found).kind == OpKind::kReceive && op(found).channel == channel &&
           op(found).stage == of.stage && op(found).iteration == of.iteration &&
           op(found).lap == of.lap && op(found).copy == of.copy;
  }
  template <typename Predicate>
  bool WaitsFor(int i, Predicate predicate) const {
    const std::vector<int64_t>& after = linked(i).after;
    return std::any_of(after.begin(), after.end(), predicate);
  }

  int Label(int i, int j) const {
    const int version = op(i).iteration.value;
    if (op(i).kind == OpKind::kForward || op(i).kind == OpKind::kBackward) {
      return RequiredLabel(plan_, PlaceOf(plan_, MicroBatchOf(i)), j);
    }
    return plan_.stages[j].sum_bytes > 0 ? version : 0;
  }

  // Which message brings stage j to operation i.
  Copy CopyFor(int i, int j) const {
    switch (op(i).kind) {
      case OpKind::kForward: return Copy::kForward;
      case OpKind::kBackward: {
        const bool own_copy =
            plan_.stages[j].has_backward && j < plan_.stage_count() - plan_.retain;
        return own_copy ? Copy::kBackward : Copy::kForward;
      }
      case OpKind::kEvaluate: return Copy::kEvaluation;
      default: return Copy::kCollection;
    }
  }

  // The parameters that operation i works with: its own stage and those tied to it, in the version
  // of the update rule, from the message meant for it or from the owner's own memory.
  absl::Status CheckReads(int i) {
    std::vector<int> needed;
    const int own = op(i).stage.value;
    for (int j = own; j >= 0; --j) {
      const bool tied =
          j < own && plan_.stages[j].last_use == op(i).stage && op(i).kind != OpKind::kCollect;
      if ((j == own || tied) && plan_.stages[j].parameter_bytes > 0) needed.push_back(j);
    }
    std::vector<int> found;
    for (const Read& read : linked(i).reads) {
      const int j = read.stage.value;
      found.push_back(j);
      if (read.version.value != Label(i, j)) {
        return Wrong(i, absl::StrCat("reads version ", LabelText(read.version), " of stage ", j,
                                     ", the rule says ", LabelText(Version(Label(i, j)))));
      }
      RZ_RETURN_IF_ERROR(CheckSource(i, read));
    }
    std::sort(found.rbegin(), found.rend());
    if (found != needed) return Wrong(i, "does not read exactly the stages that it computes with");
    if (op(i).kind == OpKind::kEvaluate || op(i).kind == OpKind::kCollect) {
      return CheckStatistics(i);
    }
    RZ_RETURN_IF_ERROR(CheckScaleKnown(i));
    return CheckToken(i);
  }

  absl::Status CheckSource(int i, const Read& read) {
    const int j = read.stage.value;
    const bool owns = HasMasters(ring_.worker_of(i), read.stage);
    if (owns != read.owned) return Wrong(i, absl::StrCat("has stage ", j, " from the wrong place"));
    if (read.op >= 0 && !WaitsFor(i, [&](int64_t after) { return after == read.op; })) {
      return Wrong(i, absl::StrCat("does not wait for its copy of stage ", j));
    }
    if (owns) {
      // The update that makes θ_t makes the prediction of θ_{t+1} with it.
      const int made_as = LabelNumber(read.version) - (IsPrediction(read.version) ? 1 : 0);
      const bool initial = made_as <= 0;
      const bool made = !initial && read.op >= 0 && IsUpdateTo(read.op, read.stage, made_as);
      if (initial ? read.op >= 0 : !made) {
        return Wrong(i, absl::StrCat("reads version ", LabelText(read.version), " of stage ", j,
                                     " before its update made it"));
      }
      return absl::OkStatus();
    }
    if (IsHeld(i)) return absl::OkStatus();  // CheckHeldCopies looks at these
    Op name = op(i);
    name.stage = read.stage;
    name.copy = CopyFor(i, j);
    const bool right = read.op >= 0 && CarriesParameters(op(read.op).channel) &&
                       IsReceive(read.op, name, op(read.op).channel) &&
                       op(read.op).version == read.version;
    return right ? absl::OkStatus()
                 : Wrong(i, absl::StrCat("has a copy of stage ", j, " of another use"));
  }

  bool HasMasters(int worker, StageId j) const {
    return plan_.owner(j).value == worker || plan_.zero_stage == 0 || !plan_.exchange;
  }

  // Whether operation i reads a copy that stays until its release.
  bool IsHeld(int i) const {
    const bool holds = plan_.exchange && (plan_.zero_stage == 1 || plan_.zero_stage == 2);
    return holds && op(i).kind != OpKind::kCollect && op(i).channel != Channel::kCollection;
  }

  absl::Status CheckStatistics(int i) {
    const StageId j = op(i).stage;
    if (plan_.stage(j).buffer_bytes == 0 || op(i).iteration.value == 0) return absl::OkStatus();
    return HasSnapshot(i) ? absl::OkStatus()
                          : Wrong(i, "has the running statistics of another version");
  }
  bool HasSnapshot(int i) const {
    const int64_t snapshot = linked(i).snapshot;
    return snapshot >= 0 && op(snapshot).stage == op(i).stage &&
           op(snapshot).iteration == op(i).iteration &&
           (op(snapshot).kind == OpKind::kSnapshot ||
            op(snapshot).channel == Channel::kSnapshots) &&
           WaitsFor(i, [&](int64_t after) { return after == snapshot; });
  }

  // The first operation of an iteration knows its loss scale: overflows of the iteration before (in
  // dp), or of the one before that.
  absl::Status CheckScaleKnown(int i) {
    const bool begins =
        op(i).kind == OpKind::kForward && op(i).stage.value == 0 && op(i).lap.value == 0;
    if (!plan_.skip_overflows || !plan_.exchange || !begins) return absl::OkStatus();
    const int norm = op(i).iteration.value - (plan_.rule == Rule::kDp ? 1 : 2);
    return norm < 0 || WaitsForNorm(i, norm)
               ? absl::OkStatus()
               : Wrong(i, "does not wait for the overflows that its loss scale depends on");
  }

  // With stagger an operation of a lap waits for its token from the previous micro-batch.
  absl::Status CheckToken(int i) {
    if (TokenBefore(op(i).kind, op(i).stage, MicroBatchOf(i)) == nullptr) return absl::OkStatus();
    Op name = op(i);
    name.copy = op(i).kind == OpKind::kForward ? Copy::kForward : Copy::kBackward;
    const auto token = [&](int64_t after) { return IsReceive(after, name, Channel::kToken); };
    return WaitsFor(i, token) ? absl::OkStatus() : Wrong(i, "does not wait for the stagger token");
  }

  // What is copied on arrival frees its own slot; that it is used is seen where it is.
  absl::Status CheckReceive(int i) {
    const Channel channel = op(i).channel;
    const bool copied = channel == Channel::kBuffers || channel == Channel::kSnapshots ||
                        channel == Channel::kToken || channel == Channel::kNorms;
    if (ring_.frees[i].empty() && !copied) return Wrong(i, "nobody uses it");
    return absl::OkStatus();
  }

  absl::Status CheckSend(int i) {
    switch (op(i).channel) {
      case Channel::kForwardCopy:
      case Channel::kBackwardCopy:
      case Channel::kInject:
      case Channel::kEvaluation:
      case Channel::kCollection: return CheckSentCopy(i);
      case Channel::kStates: return CheckCollected(i);
      case Channel::kFinished:
        return IsCompleteSum(i, linked(i).snapshot, op(i))
                   ? absl::OkStatus()
                   : Wrong(i, "does not pass on the complete sum");
      case Channel::kNorms: {
        const OpKind kind = op(i).stage == kNoStage ? OpKind::kNorm : OpKind::kSquares;
        return WaitsForOne(i, kind, op(i).stage, op(i).iteration.value)
                   ? absl::OkStatus()
                   : Wrong(i, "does not wait for what it sends");
      }
      case Channel::kSum: return CheckTakes(i, OpKind::kAdd, UserOf(i) - 1);
      case Channel::kRetire: return CheckTakes(i, OpKind::kAdd, LastOf(op(i).iteration.value));
      case Channel::kBuffers: return CheckTakes(i, OpKind::kApply, UserOf(i) - 1);
      case Channel::kSnapshots:
        return HasSnapshot(i) ? absl::OkStatus() : Wrong(i, "sends another snapshot");
      case Channel::kMetrics:
      case Channel::kReports: return CheckSentFold(i);
      case Channel::kToken: {
        const OpKind begins = op(i).copy == Copy::kForward ? OpKind::kForward : OpKind::kBackward;
        const StaggerWait* token = TokenBefore(begins, op(i).stage, UserOf(i));
        if (token == nullptr) return Wrong(i, "nobody waits for this token");
        const Op& wanted = token->finished;
        const int64_t from = UserOf(i) - 1 + (token->in_next_lap ? plan_.workers : 0);
        const auto reached = [&](int64_t after) {
          return Is(after, wanted.kind, wanted.stage, from);
        };
        return WaitsFor(i, reached) ? absl::OkStatus()
                                    : Wrong(i, absl::StrCat("the token does not wait for \"",
                                                            ToString(wanted), "\""));
      }
      case Channel::kNone: break;
    }
    return Wrong(i, "is on no channel");
  }

  int64_t LastOf(int iteration) const {
    return NumberOf(plan_, {plan_.workers - 1, iteration, plan_.laps - 1});
  }

  absl::Status CheckTakes(int i, OpKind kind, int64_t m) {
    return Is(linked(i).takes, kind, op(i).stage, m)
               ? absl::OkStatus()
               : Wrong(i, "does not take what the micro-batch before its receiver has left");
  }

  absl::Status CheckSentCopy(int i) {
    if (linked(i).reads.size() != 1) return Wrong(i, "sends no copy");
    const Read& read = linked(i).reads[0];
    if (read.version != op(i).version || read.stage != op(i).stage) {
      return Wrong(i, "sends another version or stage");
    }
    if (read.owned || IsHeld(i)) return CheckSource(i, read);
    // A relay passes on the copy that this worker's micro-batch before the receiver's uses.
    const Op& source = op(read.op);
    const bool evaluation = op(i).copy == Copy::kEvaluation;
    const int64_t user = evaluation ? EvaluationPlace(i, op(i).peer.value) : UserOf(i);
    const int received = static_cast<int>(read.op);
    const int64_t from =
        evaluation ? EvaluationPlace(received, ring_.worker_of(received)) : MicroBatchOf(received);
    const bool right = source.kind == OpKind::kReceive && source.copy == op(i).copy &&
                       source.version == op(i).version && from == user - 1;
    return right ? absl::OkStatus() : Wrong(i, "relays a copy of another use");
  }

  // The number of an evaluation's micro-batch, all evaluations in a row.
  int64_t EvaluationPlace(int i, int worker) const {
    const int64_t lap = int64_t{op(i).iteration.value} * plan_.evaluation.laps + op(i).lap.value;
    return lap * plan_.workers + worker;
  }

  absl::Status CheckAdd(int i) {
    const auto is_backward = [&](int64_t after) {
      return Is(after, OpKind::kBackward, op(i).stage, MicroBatchOf(i));
    };
    if (!WaitsFor(i, is_backward)) return Wrong(i, "does not wait for its own backward");
    const MicroBatchPlace place = PlaceOf(plan_, MicroBatchOf(i));
    return CheckContinues(i, place.worker == 0 && place.lap == 0, Channel::kSum);
  }

  absl::Status CheckApply(int i) {
    const auto is_forward = [&](int64_t after) {
      return Is(after, OpKind::kForward, op(i).stage, MicroBatchOf(i));
    };
    if (!WaitsFor(i, is_forward)) return Wrong(i, "does not wait for its own forward");
    return CheckContinues(i, MicroBatchOf(i) == 0, Channel::kBuffers);
  }

  absl::Status CheckFold(int i) {
    const auto is_end = [&](int64_t after) {
      return op(after).kind == OpKind::kEnd && op(after).iteration == op(i).iteration &&
             op(after).lap == op(i).lap && op(after).copy == op(i).copy;
    };
    if (!WaitsFor(i, is_end)) return Wrong(i, "does not wait for the end of its micro-batch");
    return CheckContinues(i, ring_.worker_of(i) == 0 && op(i).lap.value == 0, Channel::kMetrics);
  }

  // An Add, Apply or Fold goes on with what the previous micro-batch has left: by message or, with
  // one worker, in place. The first starts anew.
  absl::Status CheckContinues(int i, bool first, Channel channel) {
    const int64_t takes = linked(i).takes;
    bool right = false;
    if (first) {
      right = takes < 0;
    } else if (alone()) {
      right = takes >= 0 && op(takes).kind == op(i).kind && op(takes).stage == op(i).stage &&
              op(takes).copy == op(i).copy &&
              FoldedBefore(static_cast<int>(takes)) + 1 == FoldedBefore(i);
    } else {
      right = IsReceive(takes, op(i), channel);
    }
    if (takes >= 0 && !WaitsFor(i, [&](int64_t after) { return after == takes; })) right = false;
    return right ? absl::OkStatus()
                 : Wrong(i, "does not go on where the micro-batch before it ended");
  }
  int64_t FoldedBefore(int i) const {
    return op(i).copy == Copy::kEvaluation ? EvaluationPlace(i, ring_.worker_of(i))
                                           : MicroBatchOf(i);
  }

  absl::Status CheckUpdate(int i) {
    if (!IsWhatIsUpdatedWith(i, linked(i).takes, op(i))) {
      return Wrong(i, "does not take the complete sum");
    }
    RZ_RETURN_IF_ERROR(CheckClipped(i));
    const int before = op(i).version.value - 1;
    if (before == 0) return absl::OkStatus();
    const auto made = [&](int64_t after) { return IsUpdateTo(after, op(i).stage, before); };
    if (!WaitsFor(i, made)) return Wrong(i, "does not wait for the update before it");
    // The optimizer's state of that version is copied before this update changes it.
    const auto keep = keeps_.find({ring_.worker_of(i), op(i).stage.value, before});
    const bool kept =
        keep == keeps_.end() || WaitsFor(i, [&](int64_t after) { return after == keep->second; });
    return kept ? absl::OkStatus() : Wrong(i, "does not wait for the keep of the state it changes");
  }
  bool IsUpdateTo(int64_t found, StageId stage, int version) const {
    return found >= 0 && op(found).kind == OpKind::kUpdate && op(found).stage == stage &&
           op(found).version.value == version;
  }

  // The complete sum is kept before the update takes it, the state after the update that made it.
  absl::Status CheckKeep(int i) {
    const int64_t from = linked(i).snapshot;
    const int version = op(i).iteration.value;
    bool right = false;
    if (op(i).copy == Copy::kState) {
      right = IsUpdateTo(from, op(i).stage, version);
    } else {
      Op sum = op(i);
      sum.iteration = Iteration(version - 1);
      sum.copy = Copy::kNone;
      right = IsWhatIsUpdatedWith(i, from, sum);
      const int next = right ? taken_by_[from] : -1;
      right = next >= 0 && WaitsFor(next, [&](int64_t after) { return after == i; });
    }
    if (right) right = WaitsFor(i, [&](int64_t after) { return after == from; });
    return right ? absl::OkStatus() : Wrong(i, "keeps another sum or state than its version's");
  }
  // The sum of the stage and iteration of `of`, complete, on the worker of operation i.
  bool IsCompleteSum(int i, int64_t found, const Op& of) const {
    const int64_t last = LastOf(of.iteration.value);
    return ring_.worker_of(i) == PlaceOf(plan_, last).worker
               ? Is(found, OpKind::kAdd, of.stage, last)
               : IsReceive(found, of,
                           plan_.zero_stage == 0 ? Channel::kFinished : Channel::kRetire);
  }

  // The same where its update finds it: it may have been taken before.
  bool IsWhatIsUpdatedWith(int i, int64_t found, const Op& of) const {
    if (!TakesSums()) return IsCompleteSum(i, found, of);
    return found >= 0 && op(found).kind == OpKind::kSquares && op(found).stage == of.stage &&
           op(found).iteration == of.iteration;
  }

  bool TakesSums() const { return plan_.clipping == Clipping::kExact || plan_.skip_overflows; }

  // Whether it waits for an operation of this kind, or (of a norm) for the message that brings it.
  bool WaitsForOne(int i, OpKind kind, StageId stage, int iteration) const {
    return WaitsFor(i, [&](int64_t after) {
      const bool same = op(after).stage == stage && op(after).iteration.value == iteration;
      return same && op(after).kind == kind;
    });
  }
  bool WaitsForNorm(int i, int iteration) const {
    const auto brings = [&](int64_t after) {
      return op(after).kind == OpKind::kReceive && op(after).channel == Channel::kNorms &&
             op(after).stage == kNoStage && op(after).iteration.value == iteration;
    };
    return WaitsForOne(i, OpKind::kNorm, kNoStage, iteration) || WaitsFor(i, brings);
  }

  // An update knows what it is clipped by, and whether it is made.
  absl::Status CheckClipped(int i) {
    const bool skips = plan_.skip_overflows;
    if ((plan_.clipping == Clipping::kOff && !skips) || !plan_.exchange) return absl::OkStatus();
    const int t = op(i).iteration.value;
    if (!WaitsForOne(i, OpKind::kSquares, op(i).stage, t)) {
      return Wrong(i, "does not wait for the squares of its sum");
    }
    if (plan_.clipping == Clipping::kPerStage && !skips) return absl::OkStatus();
    const int norm = plan_.clipping == Clipping::kPrevious ? t - 1 : t;
    return norm < 0 || WaitsForNorm(i, norm) ? absl::OkStatus()
                                             : Wrong(i, "does not wait for the norm");
  }

  // Of a complete sum: taken over, into memory that the update before has read, or left where it is
  // for the update.
  absl::Status CheckSquares(int i) {
    const bool takes = TakesSums();
    const int64_t sum = takes ? linked(i).takes : linked(i).snapshot;
    if (!IsCompleteSum(i, sum, op(i)) ||
        !WaitsFor(i, [&](int64_t after) { return after == sum; })) {
      return Wrong(i, "does not read the complete sum");
    }
    const int t = op(i).iteration.value;
    if (!takes || t == 0) return absl::OkStatus();
    const auto read = [&](int64_t after) { return IsUpdateTo(after, op(i).stage, t); };
    return WaitsFor(i, read) ? absl::OkStatus()
                             : Wrong(i, "takes a sum into memory that is still read");
  }

  // Of all stages, each once: its own, or those that owners have sent.
  absl::Status CheckNorm(int i) {
    const int t = op(i).iteration.value;
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (plan_.stages[j].sum_bytes == 0) continue;
      const auto sent = [&](int64_t after) {
        return op(after).kind == OpKind::kReceive && op(after).channel == Channel::kNorms &&
               op(after).stage.value == j && op(after).iteration.value == t;
      };
      if (WaitsForOne(i, OpKind::kSquares, StageId(j), t) || WaitsFor(i, sent)) continue;
      return Wrong(i, absl::StrCat("does not wait for the squares of stage ", j));
    }
    return absl::OkStatus();
  }

  // A kept sum or state, at its owner or on its way to whoever collects: of its own version.
  absl::Status CheckCollected(int i) {
    const int64_t takes = linked(i).takes;
    bool right = false;
    if (op(i).kind == OpKind::kCollect && !HasMasters(ring_.worker_of(i), op(i).stage)) {
      right = IsReceive(takes, op(i), Channel::kStates);
    } else {
      right = takes >= 0 && op(takes).kind == OpKind::kKeep && op(takes).stage == op(i).stage &&
              op(takes).copy == op(i).copy && op(takes).iteration == op(i).iteration;
    }
    if (right) right = WaitsFor(i, [&](int64_t after) { return after == takes; });
    return right ? absl::OkStatus() : Wrong(i, "does not take the sum or state of its version");
  }

  absl::Status CheckSentFold(int i) {
    const Op& name = op(i);
    const int64_t takes = linked(i).takes;
    const bool report = name.channel == Channel::kReports;
    const int laps = name.copy == Copy::kEvaluation ? plan_.evaluation.laps : plan_.laps;
    int lap = report ? laps - 1 : name.lap.value;
    if (!report && name.peer.value == 0) --lap;
    const bool right = takes >= 0 && op(takes).kind == OpKind::kFold &&
                       op(takes).copy == name.copy && op(takes).iteration == name.iteration &&
                       op(takes).lap.value == lap;
    return right ? absl::OkStatus() : Wrong(i, "sends another fold");
  }

  absl::Status CheckReport(int i) {
    const int64_t takes = linked(i).takes;
    const int laps = op(i).copy == Copy::kEvaluation ? plan_.evaluation.laps : plan_.laps;
    const bool right = alone() ? takes >= 0 && op(takes).kind == OpKind::kFold &&
                                     op(takes).iteration == op(i).iteration &&
                                     op(takes).copy == op(i).copy && op(takes).lap.value == laps - 1
                               : IsReceive(takes, op(i), Channel::kReports);
    return right ? absl::OkStatus() : Wrong(i, "does not report its own iteration's folds");
  }

  // A snapshot of version t is of the statistics after the last micro-batch before it; whoever
  // takes those over and changes them waits for it.
  absl::Status CheckSnapshot(int i) {
    const int64_t apply = linked(i).snapshot;
    if (!Is(apply, OpKind::kApply, op(i).stage, LastOf(op(i).iteration.value - 1))) {
      return Wrong(i, "keeps the running statistics of another version");
    }
    const int next = taken_by_[apply];
    const bool waits =
        next < 0 || next == i || WaitsFor(next, [&](int64_t after) { return after == i; });
    return waits ? absl::OkStatus()
                 : Wrong(next, "does not wait for the snapshot of what it takes");
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  std::vector<StaggerWait> stagger_;
  using VersionPlace = std::tuple<int, int, int>;  // worker, stage, version
  std::map<VersionPlace, int> keeps_;              // the keep of its state
  std::vector<int> taken_by_;  // of a sum, statistics or fold: who goes on with it; -1: nobody
};

}  // namespace

absl::Status CheckDataflow(const Plan& plan, const LinkedRing& ring) {
  RZ_RETURN_IF_ERROR(DataflowChecker(plan, ring).Check());
  return CheckHeldCopies(plan, ring);
}

}  // namespace ringzero
