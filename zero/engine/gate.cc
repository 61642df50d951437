// Begins and ends what the computing thread computes.
#include "zero/engine/gate.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

using Clock = std::chrono::steady_clock;

namespace {

CollectedPart::Kind PartOf(Copy copy) {
  if (copy == Copy::kGradient) return CollectedPart::Kind::kGradient;
  return copy == Copy::kState ? CollectedPart::Kind::kState : CollectedPart::Kind::kParameters;
}

// Whether the operation's micro-batch has no samples. True of computing in training laps only.
bool IsMissing(const EngineOptions& options, const Op& op) {
  return op.copy == Copy::kNone && op.lap != kNoLap && IsCompute(op.kind) &&
         op.kind != OpKind::kEvaluate &&
         SamplesOf(options.plan, op.iteration, MicroBatchOf(options.plan, options.self, op.lap)) ==
             0;
}

}  // namespace

absl::StatusOr<LapTask> Gate::NextLap() {
  Lock lock = executor_.Hold();
  RZ_RETURN_IF_ERROR(WaitForNext(lock));
  LapTask task;
  if (is_over()) return task;
  const Plan& plan = executor_.plan();
  const Op& op = executor_.OpOf(front());
  task.iteration = op.iteration;
  task.lap = op.lap == kNoLap ? Lap(0) : op.lap;
  task.micro_batch = MicroBatchOf(plan, executor_.options().self, task.lap);
  if (op.kind == OpKind::kForward) {
    task.kind = LapTask::Kind::kTrain;
    if (plan.samples.per_epoch > 0) {
      task.samples = SamplesOf(plan, task.iteration, task.micro_batch);
    }
  } else if (op.kind == OpKind::kEvaluate) {
    task.kind = LapTask::Kind::kEvaluate;
  } else if (op.kind == OpKind::kCollect) {
    task.kind = LapTask::Kind::kCollect;
  } else {
    return FailedPrecondition("a new micro-batch was asked for, but the program expects \"",
                              ToString(op), "\"");
  }
  return task;
}

absl::Status Gate::WaitForNext(Lock& lock) {
  const auto known = [this] { return !is_over() || !executor_.next_part().has_value(); };
  if (!known()) {
    executor_.guarded().computing.waiting_for =
        "the losses of an earlier iteration, which bring what worker 0 asks for";
  }
  double& waited = executor_.guarded().stats.wait_other_seconds;
  return executor_.WaitFor(lock, "for the next operation", known,
                           [&](double seconds) { waited += seconds; });
}

absl::StatusOr<Version> Gate::Ask(RunRequest request) {
  Lock lock = executor_.Hold();
  RZ_RETURN_IF_ERROR(WaitForNext(lock));
  const Plan& plan = executor_.plan();
  if (!plan.requests || executor_.options().self.value > 0) {
    return FailedPrecondition("requests are for worker 0, in a plan that has them");
  }
  for (const auto& [missing, what] :
       {std::pair(request.evaluates && plan.evaluation.laps == 0,
                  "an evaluation was asked for, but plan.evaluation.laps is 0"),
        std::pair(request.collects && !plan.collection.on_request,
                  "a collection was asked for, but plan.collection.on_request is false"),
        std::pair(request.saves && !plan.checkpoint.on_request,
                  "a checkpoint was asked for, but plan.checkpoint.on_request is false")}) {
    if (missing) return absl::FailedPreconditionError(what);
  }
  const Plan asked = statistics_.AskedPlan();
  Iteration brought_by(asked.iterations);
  if (!is_over()) {
    const Op& next = executor_.OpOf(front());
    const bool in_first_lap =
        next.copy == Copy::kNone && next.lap == Lap(0) && next.kind != OpKind::kEvaluate;
    brought_by = Iteration(next.iteration.value + (in_first_lap ? 0 : 1));
  }
  request.version = RequestedVersion(plan, brought_by);
  if (request.ends && request.version.value >= asked.iterations) return Version(asked.iterations);
  if (request.version.value > asked.iterations) {
    return FailedPrecondition("version ", request.version.value,
                              " is the next that can be asked for, but the run ends with version ",
                              asked.iterations);
  }
  lock.unlock();  // messages go on
  RZ_RETURN_IF_ERROR(VerifyPlan(PlanAround(asked, request)));
  lock.lock();
  RZ_RETURN_IF_ERROR(executor_.guarded().error);
  statistics_.Ask(brought_by, request);
  return request.version;
}

absl::StatusOr<int64_t> Gate::Expect(Lock& lock, OpKind kind, StageId stage) {
  RZ_RETURN_IF_ERROR(WaitForNext(lock));
  const Op found{.kind = kind, .stage = stage};
  if (is_over()) {
    return FailedPrecondition("\"", ToString(found), "\" was called, but the program is over");
  }
  const Op& expected = executor_.OpOf(front());
  if (expected.kind == kind && expected.stage == stage) return front();
  const bool has_stage = expected.stage != kNoStage;
  const std::string name =
      has_stage ? absl::StrCat(" (", executor_.plan().stage(expected.stage).name, ")") : "";
  return FailedPrecondition("the model went to \"", ToString(found), "\", but the plan expects \"",
                            ToString(expected), "\"", name,
                            ": stages must be computed in the plan's order");
}

void Gate::NoteBegin() {
  ComputingSide& computing = executor_.guarded().computing;
  computing.begun = true;
  executor_.recorder().Record(Writer::kComputing, {EventKind::kBegin, executor_.OpOf(front())});
  computing.since = Clock::now();
}

absl::StatusOr<std::vector<StageCopy>> Gate::Begin(OpKind kind, StageId stage) {
  Lock lock = executor_.Hold();
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(lock, kind, stage));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
  if (kind == OpKind::kBackward && sums_.Begins(op)) {
    RZ_RETURN_IF_ERROR(WaitForSumMemory(lock, op));
    RZ_RETURN_IF_ERROR(sums_.Begin(op));
  }
  NoteBegin();
  return messages_.CopiesOf(executor_.guarded().program.at(op).linked);
}

absl::StatusOr<EvaluationCopy> Gate::BeginEvaluation(StageId stage) {
  Lock lock = executor_.Hold();
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(lock, OpKind::kEvaluate, stage));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
  NoteBegin();
  EvaluationCopy copy;
  copy.copies = messages_.CopiesOf(executor_.guarded().program.at(op).linked);
  copy.statistics = statistics_.SnapshotOf(executor_.OpOf(op));
  return copy;
}

absl::Status Gate::End(OpKind kind, StageId stage, const std::function<void(int64_t)>& keep) {
  Lock lock = executor_.Hold();
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(lock, kind, stage));
  ComputingSide& computing = executor_.guarded().computing;
  if (kind != OpKind::kEnd && !std::exchange(computing.begun, false)) {
    return FailedPrecondition("stage ", stage.value, " was ended before it was begun");
  }
  const Op done = executor_.OpOf(op);
  if (kind == OpKind::kEnd) {
    RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
    executor_.recorder().Record(Writer::kComputing, {EventKind::kBegin, done});
  }
  RZ_RETURN_IF_ERROR(CheckReads(op));
  if (keep) keep(op);
  executor_.recorder().Record(Writer::kComputing, {EventKind::kEnd, done});
  if (executor_.options().costs != nullptr) executor_.options().costs->EndCompute(done);
  computing.next.pop_front();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - computing.since).count();
  if (kind == OpKind::kForward) executor_.guarded().stats.forward_seconds += seconds;
  if (kind == OpKind::kBackward) executor_.guarded().stats.backward_seconds += seconds;
  computing.since = now;
  executor_.Complete(op);
  if (absl::Status appended = executor_.AppendParts(); !appended.ok()) executor_.Fail(appended);
  return executor_.guarded().error;
}

Op Gate::Next() const {
  const Lock lock = executor_.Hold();
  if (is_over()) return Op();
  return executor_.OpOf(front());
}

absl::Status Gate::EndForward(StageId stage, Buffer statistics) {
  const EngineOptions& options = executor_.options();
  const int64_t bytes = options.layouts[stage.value].statistics_bytes;
  size_t wanted = options.plan.exchange ? static_cast<size_t>(bytes) : 0;
  if (IsMissing(options, Next())) wanted = 0;
  if (wanted > 0 && (!statistics || statistics.size() != wanted)) {
    return InvalidArgument("stage ", stage.value, " has ", wanted, " bytes of statistics, but ",
                           statistics ? statistics.size() : 0, " were given");
  }
  return End(OpKind::kForward, stage, [&](int64_t op) {
    if (wanted > 0) statistics_.KeepBatch(executor_.OpOf(op), std::move(statistics));
  });
}

std::byte* Gate::OpenSum(StageId stage) {
  const Lock lock = executor_.Hold();
  if (!executor_.guarded().error.ok() || !executor_.guarded().computing.begun || is_over())
    return nullptr;
  const Op& backward = executor_.OpOf(front());
  if (backward.kind != OpKind::kBackward || backward.stage != stage) return nullptr;
  return sums_.Open(front());
}

absl::Status Gate::EndBackward(StageId stage, StageGradient gradient) {
  const EngineOptions& options = executor_.options();
  if (!gradient.empty() && IsMissing(options, Next())) {
    return InvalidArgument("stage ", stage.value,
                           " was given a gradient of a micro-batch that has no samples");
  }
  for (const GradientPart& part : gradient) {
    const auto& parameters = options.layouts[stage.value].parameters;
    if (part.parameter < 0 || part.parameter >= static_cast<int>(parameters.size()) ||
        !parameters[part.parameter].trainable) {
      return InvalidArgument("stage ", stage.value, " has no trainable ", "parameter number ",
                             part.parameter);
    }
  }
  return End(OpKind::kBackward, stage, [&](int64_t op) {
    if (options.plan.exchange) sums_.Keep(op, std::move(gradient));
  });
}

absl::Status Gate::EndMicroBatch(const std::vector<double>& metrics) {
  const int wanted = executor_.options().metrics_count;
  if (static_cast<int>(metrics.size()) != wanted) {
    return InvalidArgument("a micro-batch reports ", wanted, " metrics, but ", metrics.size(),
                           " were given");
  }
  return End(OpKind::kEnd, kNoStage, [&](int64_t op) {
    if (executor_.plan().exchange) statistics_.KeepMetrics(executor_.OpOf(op), metrics);
  });
}

absl::Status Gate::SkipMicroBatch(const std::vector<double>& metrics) {
  RZ_ASSIGN_OR_RETURN(const LapTask task, NextLap());
  if (task.kind != LapTask::Kind::kTrain || !task.missing()) {
    return FailedPrecondition("micro-batch ", task.micro_batch, " of iteration ",
                              task.iteration.value, " is not missing: it has to be computed");
  }
  const Plan& plan = executor_.plan();
  for (int j = 0; j < plan.stage_count(); ++j) {
    RZ_RETURN_IF_ERROR(Begin(OpKind::kForward, StageId(j)).status());
    RZ_RETURN_IF_ERROR(EndForward(StageId(j), Buffer()));
  }
  for (int j = plan.stage_count() - 1; j >= 0 && plan.stages[j].has_backward; --j) {
    RZ_RETURN_IF_ERROR(Begin(OpKind::kBackward, StageId(j)).status());
    RZ_RETURN_IF_ERROR(EndBackward(StageId(j), {}));
  }
  return EndMicroBatch(metrics);
}

absl::StatusOr<CollectedPart> Gate::Collect() {
  Lock lock = executor_.Hold();
  const StageId stage = is_over() ? kNoStage : executor_.OpOf(front()).stage;
  RZ_ASSIGN_OR_RETURN(const int64_t number, Expect(lock, OpKind::kCollect, stage));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, number));
  NoteBegin();
  const LinkedOp& linked = executor_.guarded().program.at(number).linked;
  CollectedPart part{.kind = PartOf(linked.op.copy), .stage = stage};
  if (part.kind != CollectedPart::Kind::kParameters) {
    part.values = blocks_.Read(linked.op.uses[0].block);
    return part;
  }
  for (StageCopy& copy : messages_.CopiesOf(linked)) part.parameters = std::move(copy.parameters);
  part.statistics = statistics_.SnapshotOf(linked.op);
  return part;
}

absl::Status Gate::EndCollect() { return End(OpKind::kCollect, Next().stage, nullptr); }

absl::Status Gate::CheckReads(int64_t number) {
  const LinkedOp& linked = executor_.guarded().program.at(number).linked;
  const absl::Status reads = messages_.CheckReads(linked);
  if (!reads.ok()) executor_.FailAt(linked.op, reads);
  return executor_.guarded().error;
}

double* Gate::WaitCounter(int64_t op) {
  EngineStats& stats = executor_.guarded().stats;
  const Op& cause = executor_.OpOf(op);
  const bool sum = cause.kind == OpKind::kAdd || cause.channel == Channel::kReturn ||
                   cause.channel == Channel::kSum;
  if (sum) return &stats.wait_gradient_sums_seconds;
  if (cause.kind == OpKind::kUpdate) return &stats.wait_update_seconds;
  if (CarriesParameters(cause.channel) || cause.kind == OpKind::kLoad)
    return &stats.wait_parameters_seconds;
  return &stats.wait_other_seconds;
}

absl::Status Gate::WaitUntilReady(Lock& lock, int64_t op) {
  const auto missing = [&] { return executor_.guarded().program.FirstUnfinished(op); };
  RZ_RETURN_IF_ERROR(WaitWhile(lock, op, missing));
  return CheckReads(op);
}

absl::Status Gate::WaitForSumMemory(Lock& lock, int64_t op) {
  std::optional<int64_t>& missing = executor_.guarded().computing.missing;
  absl::Status waited = WaitWhile(lock, op, [&] { return missing.emplace(sums_.Missing(op)); });
  missing.reset();
  return waited;
}

absl::Status Gate::WaitWhile(Lock& lock, int64_t op, const std::function<int64_t()>& missing) {
  const Op waiting = executor_.OpOf(op);
  double* counter = nullptr;
  int64_t missed = kNoOp;
  Op cause_op;  // a copy: what is done may be forgotten
  const auto ready = [&] {
    FlightRecorder& recorder = executor_.recorder();
    const int64_t cause = missing();
    if (cause != missed) {
      if (missed != kNoOp) recorder.Record(Writer::kComputing, {EventKind::kWaited, cause_op});
      missed = cause;
      if (cause != kNoOp) {
        cause_op = executor_.OpOf(cause);
        recorder.Record(Writer::kComputing, {EventKind::kWait, cause_op});
      }
    }
    if (cause != kNoOp) {
      counter = WaitCounter(cause);
      executor_.guarded().computing.waiting_for = absl::StrCat(
          "\"", ToString(executor_.OpOf(cause)), "\", to start \"", ToString(waiting), "\"");
    }
    return cause == kNoOp;
  };
  return executor_.WaitFor(lock, absl::StrCat("to start \"", ToString(waiting), "\""), ready,
                           [&](double seconds) { *counter += seconds; });
}

}  // namespace ringzero
