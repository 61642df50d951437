// The computing thread's side of the engine: begin, end, and the waits between.
#include "zero/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/samples.h"
#include "sharding/verify.h"
#include "zero/engine_impl.h"
#include "zero/optimizer_state.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {

using Clock = std::chrono::steady_clock;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  RZ_RETURN_IF_ERROR(CheckPlan(options.plan));
  RZ_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  if (options.plan.predict) RZ_RETURN_IF_ERROR(CheckPredictable(options.optimizer));
  RZ_RETURN_IF_ERROR(VerifyPlan(options.plan));
  if (options.loss_scale.dynamic && options.plan.exchange && !options.plan.skip_overflows) {
    return absl::InvalidArgumentError(
        "a dynamic loss scale needs a plan that skips overflows: nothing else tells of them");
  }
  if (static_cast<int>(options.layouts.size()) != options.plan.stage_count()) {
    return InvalidArgument("the plan has ", options.plan.stage_count(), " stages, but ",
                           options.layouts.size(), " layouts were given");
  }
  RZ_RETURN_IF_ERROR(CheckGroups(options.optimizer, options.layouts));
  for (int j = 0; j < options.plan.stage_count(); ++j) {
    const StagePlan& stage = options.plan.stages[j];
    const StageLayout& layout = options.layouts[j];
    if (layout.sum_type == ValueType::kFp16) {
      return InvalidArgument("stage ", j, ": sums travel as fp32 or bf16, found fp16");
    }
    if (stage.parameter_bytes != layout.parameter_bytes ||
        stage.master_bytes != layout.master_bytes || stage.sum_bytes != layout.sum_bytes ||
        stage.buffer_bytes != layout.statistics_bytes) {
      return InvalidArgument("stage ", j, ": plan and layout differ in bytes");
    }
    if (stage.trained_parameters != layout.trainable_count && options.plan.has_norm()) {
      return InvalidArgument("stage ", j, ": it trains ", layout.trainable_count,
                             " parameters, the plan says ", stage.trained_parameters);
    }
    const int64_t state_bytes = StateLayout::Make(options.optimizer, layout).bytes;
    if (stage.state_bytes != 0 && stage.state_bytes != state_bytes) {
      return InvalidArgument("stage ", j, ": its optimizer state has ", state_bytes,
                             " bytes, the plan says ", stage.state_bytes);
    }
  }
  const bool clips = options.plan.clipping != Clipping::kOff;
  if (options.plan.exchange && clips != (options.optimizer.max_norm > 0)) {
    return InvalidArgument("optimizer: max_norm ", options.optimizer.max_norm, " with clipping ",
                           ToString(options.plan.clipping));
  }
  if (options.transport == nullptr && options.plan.exchange && options.plan.workers > 1) {
    return absl::InvalidArgumentError("a plan of several workers needs a transport");
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  RZ_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<LapTask> Engine::NextLap() { return impl_->NextLap(); }

absl::StatusOr<std::vector<StageCopy>> Engine::BeginForward(StageId stage) {
  return impl_->Begin(OpKind::kForward, stage);
}
absl::Status Engine::EndForward(StageId stage, Buffer statistics) {
  return impl_->EndForward(stage, std::move(statistics));
}
absl::StatusOr<std::vector<StageCopy>> Engine::BeginBackward(StageId stage) {
  return impl_->Begin(OpKind::kBackward, stage);
}
std::byte* Engine::OpenSum(StageId stage) { return impl_->OpenSum(stage); }
absl::Status Engine::EndBackward(StageId stage, StageGradient gradient) {
  return impl_->EndBackward(stage, std::move(gradient));
}
absl::Status Engine::EndMicroBatch(const std::vector<double>& metrics) {
  return impl_->EndMicroBatch(metrics);
}
absl::Status Engine::SkipMicroBatch(const std::vector<double>& metrics) {
  return impl_->SkipMicroBatch(metrics);
}
absl::StatusOr<EvaluationCopy> Engine::BeginEvaluation(StageId stage) {
  return impl_->BeginEvaluation(stage);
}
absl::Status Engine::EndEvaluation(StageId stage) {
  return impl_->End(OpKind::kEvaluate, stage, nullptr);
}
absl::StatusOr<CollectedPart> Engine::Collect() { return impl_->Collect(); }
absl::Status Engine::EndCollect() { return impl_->EndCollect(); }
absl::Status Engine::Finish() { return impl_->Finish(); }
void Engine::Abort(const absl::Status& why) { impl_->Abort(why); }
double Engine::GradientSquares(Iteration t) const { return impl_->GradientSquares(t); }
std::optional<StageId> Engine::NonfiniteStage(Iteration t) const {
  return impl_->NonfiniteStage(t);
}
double Engine::LossScaleOf(Iteration t) const { return impl_->LossScaleOf(t); }
absl::Status Engine::status() const { return impl_->status(); }
const Plan& Engine::plan() const { return impl_->options().plan; }
const std::vector<StageLayout>& Engine::layouts() const { return impl_->options().layouts; }
EngineStats Engine::stats() const { return impl_->stats(); }
std::string Engine::DebugString() const { return impl_->DebugString(); }
const FlightRecorder& Engine::recorder() const { return impl_->recorder(); }
FlightRecord Engine::Flight(const std::string& why) const { return impl_->Flight(why); }
void Engine::MeasureClock() { impl_->MeasureClock(); }
std::optional<ClockOffset> Engine::clock_offset() const { return impl_->clock_offset(); }

absl::StatusOr<LapTask> Engine::Impl::NextLap() {
  Lock lock(mutex_);
  if (!error_.ok()) return error_;
  LapTask task;
  if (compute_.empty()) return task;
  const Op& op = state_.at(compute_.front()).linked.op;
  task.iteration = op.iteration;
  task.lap = op.lap == kNoLap ? Lap(0) : op.lap;
  task.micro_batch = task.lap.value * plan_.workers + options_.self.value;
  if (op.kind == OpKind::kForward) {
    task.kind = LapTask::Kind::kTrain;
    if (plan_.samples.per_epoch > 0) {
      task.samples = SamplesOf(plan_, task.iteration, task.micro_batch);
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

absl::StatusOr<int64_t> Engine::Impl::Expect(OpKind kind, StageId stage) {
  if (!error_.ok()) return error_;
  Op found{.kind = kind, .stage = stage};
  if (compute_.empty()) {
    return FailedPrecondition("\"", ToString(found), "\" was called, but the program is over");
  }
  const Op& expected = state_.at(compute_.front()).linked.op;
  if (expected.kind != kind || expected.stage != stage) {
    const std::string name =
        expected.stage == kNoStage ? "" : absl::StrCat(" (", plan_.stage(expected.stage).name, ")");
    return FailedPrecondition("the model went to \"", ToString(found),
                              "\", but the plan expects \"", ToString(expected), "\"", name,
                              ": stages must be computed in the plan's order");
  }
  return compute_.front();
}

absl::StatusOr<std::vector<StageCopy>> Engine::Impl::Begin(OpKind kind, StageId stage) {
  Lock lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(kind, stage));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
  if (kind == OpKind::kBackward) RZ_RETURN_IF_ERROR(WaitForSumMemory(lock, op));
  SetBegun();
  return CopiesOf(state_.at(op).linked);
}

absl::StatusOr<EvaluationCopy> Engine::Impl::BeginEvaluation(StageId stage) {
  Lock lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(OpKind::kEvaluate, stage));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
  SetBegun();
  EvaluationCopy copy;
  copy.copies = CopiesOf(state_.at(op).linked);
  const auto snapshot = snapshots_.find({state_.at(op).linked.op.iteration.value, stage.value});
  if (snapshot != snapshots_.end()) copy.statistics = snapshot->second;
  return copy;
}

std::vector<StageCopy> Engine::Impl::CopiesOf(const LinkedOp& linked) const {
  std::vector<StageCopy> copies;
  for (const Read& read : linked.reads) {
    // A forward reads tied stages by the copies of their own BeginForward, which are still held.
    if (linked.op.kind != OpKind::kBackward && read.stage != linked.op.stage) continue;
    copies.push_back({read.stage, CopyOf(read)});
  }
  return copies;
}

absl::Status Engine::Impl::End(OpKind kind, StageId stage,
                               const std::function<void(const Op&)>& keep) {
  Lock lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const int64_t op, Expect(kind, stage));
  if (kind != OpKind::kEnd && !std::exchange(begun_, false)) {
    return FailedPrecondition("stage ", stage.value, " was ended before it was begun");
  }
  const Op done = state_.at(op).linked.op;
  if (kind == OpKind::kEnd) {
    RZ_RETURN_IF_ERROR(WaitUntilReady(lock, op));
    recorder_.Record(Writer::kComputing, {EventKind::kBegin, done});
  }
  if (keep) keep(done);
  recorder_.Record(Writer::kComputing, {EventKind::kEnd, done});
  if (options_.costs != nullptr) options_.costs->EndCompute(done);
  compute_.pop_front();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - computing_since_).count();
  if (kind == OpKind::kForward) stats_.forward_seconds += seconds;
  if (kind == OpKind::kBackward) stats_.backward_seconds += seconds;
  computing_since_ = now;
  Complete(op);
  if (!compute_.empty()) {
    const int iteration = state_.at(compute_.front()).linked.op.iteration.value;
    snapshots_.erase(snapshots_.begin(), snapshots_.lower_bound({iteration, 0}));
    if (absl::Status appended = AppendParts(); !appended.ok()) Fail(appended);
  }
  return error_;
}

absl::Status Engine::Impl::EndForward(StageId stage, Buffer statistics) {
  const StageLayout& layout = options_.layouts[stage.value];
  size_t wanted = plan_.exchange ? static_cast<size_t>(layout.statistics_bytes) : 0;
  if (NextIsMissing()) wanted = 0;
  if (wanted > 0 && (!statistics || statistics.size() != wanted)) {
    return InvalidArgument("stage ", stage.value, " has ", wanted, " bytes of statistics, but ",
                           statistics ? statistics.size() : 0, " were given");
  }
  return End(OpKind::kForward, stage, [&](const Op& op) {
    if (wanted > 0) statistics_[PlaceOf(op)] = std::move(statistics);
  });
}

absl::Status Engine::Impl::EndBackward(StageId stage, StageGradient gradient) {
  if (!gradient.empty() && NextIsMissing()) {
    return InvalidArgument("stage ", stage.value,
                           " was given a gradient of a micro-batch that has no samples");
  }
  for (const GradientPart& part : gradient) {
    const auto& parameters = options_.layouts[stage.value].parameters;
    if (part.parameter < 0 || part.parameter >= static_cast<int>(parameters.size()) ||
        !parameters[part.parameter].trainable) {
      return InvalidArgument("stage ", stage.value, " has no trainable ", "parameter number ",
                             part.parameter);
    }
  }
  return End(OpKind::kBackward, stage, [&](const Op& op) {
    // A stage without a sum has no add.
    if (plan_.exchange && AddOf(compute_.front()) != kNoOp) {
      gradient_bytes_ += BytesOf(stage, gradient);
      stats_.memory.gradients = std::max(stats_.memory.gradients, gradient_bytes_);
      gradients_[PlaceOf(op)] = std::move(gradient);
    }
  });
}

absl::Status Engine::Impl::EndMicroBatch(const std::vector<double>& metrics) {
  if (static_cast<int>(metrics.size()) != options_.metrics_count) {
    return InvalidArgument("a micro-batch reports ", options_.metrics_count, " metrics, but ",
                           metrics.size(), " were given");
  }
  return End(OpKind::kEnd, kNoStage, [&](const Op& op) {
    if (!plan_.exchange) return;
    metrics_[{op.copy == Copy::kEvaluation, op.iteration.value, op.lap.value}] = metrics;
  });
}

double* Engine::Impl::WaitCounter(int64_t op) {
  const Op& cause = state_.at(op).linked.op;
  if (cause.kind == OpKind::kAdd) return &stats_.wait_gradient_sums_seconds;
  if (cause.kind == OpKind::kUpdate) return &stats_.wait_update_seconds;
  if (CarriesParameters(cause.channel)) return &stats_.wait_parameters_seconds;
  return &stats_.wait_other_seconds;
}

absl::Status Engine::Impl::WaitUntilReady(Lock& lock, int64_t op) {
  const Op& waiting = state_.at(op).linked.op;
  double* counter = nullptr;
  int64_t missed = kNoOp;
  Op missing;  // a copy: what is done may be forgotten
  return WaitFor(
      lock, absl::StrCat("to start \"", ToString(waiting), "\""),
      [&] {
        const int64_t cause = state_.FirstUnfinished(op);
        if (cause != missed) {
          if (missed != kNoOp) recorder_.Record(Writer::kComputing, {EventKind::kWaited, missing});
          missed = cause;
          if (cause != kNoOp) {
            missing = state_.at(cause).linked.op;
            recorder_.Record(Writer::kComputing, {EventKind::kWait, missing});
          }
        }
        if (cause != kNoOp) {
          counter = WaitCounter(cause);
          waiting_for_ = absl::StrCat("\"", ToString(state_.at(cause).linked.op), "\", to start \"",
                                      ToString(waiting), "\"");
        }
        return cause == kNoOp;
      },
      [&](double seconds) { *counter += seconds; });
}

absl::Status Engine::Impl::WaitFor(Lock& lock, const std::string& what,
                                   const std::function<bool()>& done,
                                   const std::function<void(double)>& waited,
                                   std::chrono::microseconds look) {
  const Deadline deadline(options_.wait_timeout);
  Clock::time_point since = Clock::now();
  while (error_.ok() && !done()) {
    // Several waits at most: each change is attributed to what was missing before it.
    changed_.wait_for(lock, std::min<std::chrono::microseconds>(deadline.Look(), look));
    const Clock::time_point now = Clock::now();
    if (waited) waited(std::chrono::duration<double>(now - since).count());
    since = now;
    if (options_.transport != nullptr && error_.ok()) {
      if (absl::Status transport = options_.transport->status(); !transport.ok()) Fail(transport);
    }
    if (deadline.over() && error_.ok() && !done()) {
      const std::string words = waiting_for_.empty() ? what : absl::StrCat("for ", waiting_for_);
      const absl::Status blame =
          Blame(lock, absl::StrCat("waited ", SecondsText(options_.wait_timeout), " ", words),
                WhatItDoes());
      if (error_.ok() && !done()) Fail(blame);
    }
  }
  waiting_for_.clear();
  return error_;
}

absl::Status Engine::Impl::Finish() {
  Lock lock(mutex_);
  if (error_.ok() && !compute_.empty()) {
    return FailedPrecondition("finished before the program: \"",
                              ToString(state_.at(compute_.front()).linked.op),
                              "\" is still to be computed");
  }
  RZ_RETURN_IF_ERROR(WaitFor(
      lock, "for the program's last operations",
      [&] {
        waiting_for_ = absl::StrCat("the last operations: ", state_.Unfinished(3));
        return state_.AllDone();
      },
      nullptr));
  const Deadline deadline(options_.wait_timeout);
  while (options_.transport != nullptr) {
    const std::vector<Undelivered> waiting = options_.transport->undelivered();
    if (waiting.empty()) break;
    RZ_RETURN_IF_ERROR(options_.transport->status());
    if (deadline.over()) {
      const std::string words =
          absl::StrCat("waited for its last ", waiting.size(),
                       " messages to be taken, the first by worker ", waiting[0].to.value);
      Fail(Blame(lock, words, {.next = waiting[0].to}));
      return error_;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(2));
  }
  RZ_RETURN_IF_ERROR(GatherSquares(lock));
  state_.Clear();
  owned_.Clear();
  blocks_.Clear();
  initial_statistics_.clear();
  snapshots_.clear();
  held_copies_.clear();
  finished_ = true;
  if (options_.transport == nullptr) return absl::OkStatus();
  return options_.transport->Close();
}

absl::Status Engine::Impl::status() const {
  Lock lock(mutex_);
  return error_;
}

EngineStats Engine::Impl::stats() const {
  Lock lock(mutex_);
  EngineStats stats = stats_;
  stats.skipped_updates = scale_.skipped();
  stats.loss_scale = scale_.now();
  if (options_.transport != nullptr) {
    stats.transport = options_.transport->stats();
    stats.memory.sums += static_cast<int64_t>(stats.transport.numbered_bytes);
  }
  return stats;
}

std::string Engine::Impl::DebugString() const {
  Lock lock(mutex_);
  return absl::StrCat("worker ", options_.self.value, ": waiting for ",
                      waiting_for_.empty() ? "nothing" : waiting_for_,
                      "; not done: ", state_.Unfinished(8),
                      error_.ok() ? "" : absl::StrCat("; error: ", error_.ToString()));
}

}  // namespace ringzero
