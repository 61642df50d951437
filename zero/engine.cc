// Puts the engine's parts together: which of them starts which kind of operation, what a worker
// begins with, and how its run ends.
#include "zero/engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/gate.h"
#include "zero/engine/messages.h"
#include "zero/engine/norms.h"
#include "zero/engine/statistics.h"
#include "zero/engine/sums.h"
#include "zero/engine/updates.h"
#include "zero/engine/waits.h"
#include "zero/flight/blame.h"
#include "zero/optimizer/optimizer.h"
#include "zero/optimizer/optimizer_options.h"
#include "zero/streams.h"
#include "zero/version_files.h"

namespace ringzero {

class Engine::Impl {
 public:
  using Lock = Executor::Lock;

  explicit Impl(EngineOptions options) : options_(std::move(options)) {}
  ~Impl();

  absl::Status Start();
  absl::Status Finish();
  void Abort(const absl::Status& why);

 private:
  friend class Engine;

  absl::Status AllocateBlocks();
  absl::Status BeginStreams();
  // Starts an operation; true: it is done.
  bool StartOp(int64_t op);
  bool MoveVersion(int64_t op);
  std::string AnswerQuestion(WorkerId from, const std::string& text);
  // Waits until all that was sent has been taken.
  absl::Status Drain(Lock& lock);
  void Clear();

  EngineOptions options_;
  const Plan& plan_ = options_.plan;
  Executor executor_{options_};
  BlockMemory blocks_;
  LentMemory lent_{plan_};
  Streams streams_{options_.layouts};
  VersionFiles version_files_{plan_, options_.self, blocks_};
  OwnedStages owned_{plan_, options_.layouts, blocks_, streams_, version_files_};
  Sums sums_{executor_, blocks_};
  Waits waits_{executor_};
  Norms norms_{executor_, blocks_, sums_, owned_};
  Statistics statistics_{executor_, blocks_};
  Messages messages_{executor_, blocks_, lent_, version_files_, norms_};
  Updates updates_{executor_, blocks_, sums_, norms_, owned_};
  EngineFlight flight_{executor_, waits_};
  Gate gate_{executor_, messages_, statistics_, sums_, blocks_};
};

namespace {

// That all is there which a run needs that does not begin with θ_0.
absl::Status CheckBeginning(const Plan& plan, const Beginning& beginning) {
  if (plan.first_iteration == 0) return absl::OkStatus();
  const auto missing = [&](const char* what) {
    return InvalidArgument("the plan begins with iteration ", plan.first_iteration,
                           ": beginning needs ", what);
  };
  if (!beginning.state) return missing("the optimizer's state");
  if (plan.skips() && !beginning.loss_scale.has_value()) return missing("the loss scale's history");
  for (int j = 0; j < plan.stage_count(); ++j) {
    if (FirstVersions(plan, StageId(j)).size() > 1 && !beginning.version) {
      return missing("what the first iteration reads besides its version");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options) {
  RZ_RETURN_IF_ERROR(CheckPlan(options.plan));
  RZ_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  const bool proven = options.proof.has_value() && options.proof->Covers(options.plan);
  if (!proven) RZ_RETURN_IF_ERROR(VerifyPlan(options.plan));
  if (options.loss_scale.dynamic && options.plan.exchange && !options.plan.skip_overflows) {
    return absl::InvalidArgumentError(
        "a dynamic loss scale needs a plan that skips overflows: nothing else tells of them");
  }
  RZ_RETURN_IF_ERROR(CheckBeginning(options.plan, options.beginning));
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
  if (options.plan.checkpoint.any() && options.saver == nullptr) {
    return absl::InvalidArgumentError("a plan with checkpoints needs a saver");
  }
  if (options.transport == nullptr && options.plan.exchange && options.plan.workers > 1) {
    return absl::InvalidArgumentError("a plan of several workers needs a transport");
  }
  if (options.plan.lends() &&
      options.transport->MemoryOf(options.self, MemoryUse::kParameters).bytes.empty()) {
    return InvalidArgument("the plan lends memory between workers, which a transport \"",
                           options.transport->name(), "\" does not share");
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  RZ_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<LapTask> Engine::NextLap() { return impl_->gate_.NextLap(); }

absl::StatusOr<std::vector<StageCopy>> Engine::BeginForward(StageId stage) {
  return impl_->gate_.Begin(OpKind::kForward, stage);
}
absl::Status Engine::EndForward(StageId stage, Buffer statistics) {
  return impl_->gate_.EndForward(stage, std::move(statistics));
}
absl::StatusOr<std::vector<StageCopy>> Engine::BeginBackward(StageId stage) {
  return impl_->gate_.Begin(OpKind::kBackward, stage);
}
std::byte* Engine::OpenSum(StageId stage) { return impl_->gate_.OpenSum(stage); }
absl::Status Engine::EndBackward(StageId stage, StageGradient gradient) {
  return impl_->gate_.EndBackward(stage, std::move(gradient));
}
absl::Status Engine::EndMicroBatch(const std::vector<double>& metrics) {
  return impl_->gate_.EndMicroBatch(metrics);
}
absl::Status Engine::SkipMicroBatch(const std::vector<double>& metrics) {
  return impl_->gate_.SkipMicroBatch(metrics);
}
absl::StatusOr<EvaluationCopy> Engine::BeginEvaluation(StageId stage) {
  return impl_->gate_.BeginEvaluation(stage);
}
absl::Status Engine::EndEvaluation(StageId stage) { return impl_->gate_.EndEvaluation(stage); }
absl::StatusOr<CollectedPart> Engine::Collect() { return impl_->gate_.Collect(); }
absl::Status Engine::EndCollect() { return impl_->gate_.EndCollect(); }
absl::StatusOr<Version> Engine::Ask(Request request) {
  return impl_->gate_.Ask({.ends = request == Request::kEnd,
                           .evaluates = request == Request::kEvaluation,
                           .collects = request == Request::kCollection,
                           .saves = request == Request::kCheckpoint});
}
absl::Status Engine::Finish() { return impl_->Finish(); }
void Engine::Abort(const absl::Status& why) { impl_->Abort(why); }
const Plan& Engine::plan() const { return impl_->executor_.plan(); }
const FlightRecorder& Engine::recorder() const { return impl_->executor_.recorder(); }
FlightRecord Engine::Flight(const std::string& why) const { return impl_->flight_.Record(why); }
void Engine::MeasureClock() { impl_->flight_.MeasureClock(); }
std::optional<ClockOffset> Engine::clock_offset() const { return impl_->flight_.clock_offset(); }

void Engine::Impl::Clear() {
  executor_.guarded().program.Clear();
  owned_.Clear();
  blocks_.Clear();
  statistics_.Clear();
  sums_.Clear();
}

Engine::Impl::~Impl() {
  if (!executor_.guarded().finished)
    Abort(absl::CancelledError(absl::StrCat("worker ", options_.self.value, " left")));
  // The transport's thread and the pool's end before anything that they use; what operations hold
  // goes back to the transport's pools first.
  options_.saver.reset();
  streams_.Stop();
  executor_.StopPool();
  {
    const Lock lock = executor_.Hold();
    Clear();
  }
  options_.transport.reset();
}

absl::Status Engine::Impl::AllocateBlocks() {
  const auto allocate = [this](const OwnBlock& own) -> absl::StatusOr<Buffer> {
    const auto bytes = static_cast<size_t>(own.bytes);
    if (own.access != Access::kPrivate) {
      RZ_ASSIGN_OR_RETURN(Buffer memory, options_.transport->Allocate(bytes, UseOf(own.access)));
      if (plan_.lends() && IsLent(own.access)) {
        RZ_RETURN_IF_ERROR(lent_.Check(*options_.transport, own.block, memory.data()));
      }
      return memory;
    }
    const bool parameters =
        own.block.kind == BlockKind::kVersion || own.block.kind == BlockKind::kMasters;
    if (parameters && options_.parameter_memory) return options_.parameter_memory(bytes);
    return MakeHeapBuffer(bytes);
  };
  const std::vector<int64_t> moments =
      MomentBytes(options_.optimizer, options_.layouts, plan_.stages);
  RZ_ASSIGN_OR_RETURN(
      const std::vector<OwnBlock> table,
      BlockTable(plan_, options_.self,
                 {.moment_bytes = moments, .metrics_count = options_.metrics_count}));
  RZ_RETURN_IF_ERROR(blocks_.Allocate(table, allocate));
  for (const OwnBlock& own : table) {
    if (IsLent(own.access) && plan_.lends()) blocks_.AddStamp(own.block);
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::BeginStreams() {
  TierOptions& tier = options_.tier;
  TierLayout layout =
      LayOutTier(plan_, options_.self, options_.layouts, options_.optimizer, tier.least_values);
  if (layout.groups.empty() && !plan_.any_streams_parameters()) return absl::OkStatus();
  if (tier.io == nullptr) return absl::InvalidArgumentError("a plan that streams needs a tier");
  const CollectionPlan& collection = plan_.collection;
  const bool shows = (collection.any() && !collection.parameters_only) || plan_.checkpoint.any() ||
                     plan_.first_iteration > 0 || plan_.any_streams_masters();
  if (shows && !layout.groups.empty() && tier.file == nullptr) {
    return absl::InvalidArgumentError("states that are streamed and looked at need a tier file");
  }
  RZ_RETURN_IF_ERROR(version_files_.Begin(std::move(tier.versions)));
  const MemoryBlock staging{.kind = BlockKind::kStaging};
  const bool stages = blocks_.Has(staging);
  return streams_.Begin({.layout = std::move(layout),
                         .tier = std::move(tier),
                         .staging = stages ? blocks_.Bytes(staging) : std::span<std::byte>(),
                         .keeper = stages ? blocks_.Lend(staging) : SharedBuffer(),
                         // Before an update's own: it would blame the worker.
                         .wait_timeout = options_.wait_timeout / 2,
                         .failed = [this](const absl::Status& why) {
                           const Lock lock = executor_.Hold();
                           executor_.Fail(why);
                         }});
}

absl::Status Engine::Impl::Start() {
  RZ_RETURN_IF_ERROR(AllocateBlocks());
  RZ_RETURN_IF_ERROR(BeginStreams());
  for (int j = 0; j < plan_.stage_count(); ++j) {
    if (!plan_.has_masters(options_.self, StageId(j))) continue;
    RZ_RETURN_IF_ERROR(owned_.Initialize(StageId(j), options_));
  }
  sums_.Initialize();
  RZ_RETURN_IF_ERROR(statistics_.Initialize());
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<ProgramWriter> program,
                      ProgramWriter::Create(plan_, options_.self, WholeRun(plan_).begin));
  const Lock lock = executor_.Hold();
  if (options_.transport != nullptr) {
    options_.transport->AnswerWith(
        [this](WorkerId from, const std::string& text) { return AnswerQuestion(from, text); });
  }
  executor_.guarded().stats.memory = blocks_.bytes();
  executor_.guarded().stats.memory.moments += owned_.scratch_bytes();
  return executor_.Begin(std::move(program),
                         {.start = [this](int64_t op) { return StartOp(op); },
                          .expect = [this](int64_t op) { return messages_.Expect(op); },
                          .blame =
                              [this](Lock& held, const std::string& waited) {
                                return waits_.Blame(held, waited, waits_.WhatItDoes());
                              }});
}

bool Engine::Impl::StartOp(int64_t number) {
  using Writer = Executor::Writer;
  const Op op = executor_.OpOf(number);
  FlightRecorder& recorder = executor_.recorder();
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kBackward:
    case OpKind::kEvaluate:
    case OpKind::kEnd:
    case OpKind::kCollect: break;  // the computing thread's
    case OpKind::kReceive:
    case OpKind::kSend: {
      const bool sends = op.kind == OpKind::kSend;
      const absl::StatusOr<bool> done = sends ? messages_.Send(number) : messages_.Receive(number);
      if (!done.ok()) executor_.FailAt(op, done.status());
      return done.ok() && *done;
    }
    case OpKind::kRelease:  // its block may be written from now on
      executor_.RecordAtOnce(op);
      return true;
    case OpKind::kNorm: {
      recorder.Record(Writer::kMessages, {EventKind::kBegin, op});
      const absl::Status folded = norms_.Fold(executor_.OpOf(number));
      if (!folded.ok()) executor_.Fail(folded);
      if (folded.ok()) recorder.Record(Writer::kMessages, {EventKind::kEnd, op});
      return folded.ok();
    }
    case OpKind::kAdd: sums_.StartAdd(number); break;
    case OpKind::kUpdate: updates_.Start(number); break;
    case OpKind::kKeep: updates_.StartKeep(number); break;
    case OpKind::kSave: updates_.StartSave(number); break;
    case OpKind::kCommit: updates_.StartCommit(number); break;
    case OpKind::kFetch: streams_.Fetch(op.stage, executor_.BeginElsewhere(number)); break;
    case OpKind::kStore: streams_.Store(op.stage, executor_.BeginElsewhere(number)); break;
    case OpKind::kLoad:
    case OpKind::kUnload: return MoveVersion(number);
    case OpKind::kSquares: norms_.StartSquares(number); break;
    case OpKind::kApply: statistics_.StartApply(number); break;
    case OpKind::kSnapshot: statistics_.StartSnapshot(number); break;
    case OpKind::kFold: statistics_.StartFold(number); break;
    case OpKind::kReport: statistics_.StartReport(number); break;
  }
  return false;
}

bool Engine::Impl::MoveVersion(int64_t number) {
  const Instruction& op = executor_.OpOf(number);
  if (!MovesVersion(op)) {  // it is there already
    executor_.RecordAtOnce(op);
    return true;
  }
  const bool loads = op.kind == OpKind::kLoad;
  const auto move = [this, loads, run = version_files_.RunOf(op), label = op.version,
                     bytes = plan_.stage(op.stage).parameter_bytes,
                     end = executor_.BeginElsewhere(number)] {
    if (!loads) SealImage(run.memory, bytes, label);
    streams_.Move(run, [=, image = run.memory] {
      const absl::Status whole = loads ? CheckImage(image, bytes, label) : absl::OkStatus();
      if (whole.ok()) end();
      return whole;
    });
    return false;
  };
  if (loads) return move();
  executor_.pool().Update(move);
  return false;
}

std::string Engine::Impl::AnswerQuestion(WorkerId from, const std::string& text) {
  if (text == kClockQuestion) return EngineFlight::AnswerClock();
  absl::string_view squares = text;
  if (absl::ConsumePrefix(&squares, kSquaresQuestion)) return norms_.Take(from, squares);
  const absl::StatusOr<BlameQuestion> question = ParseQuestion(text);
  const Lock lock = executor_.Hold();
  return WriteAnswer(question.ok() ? waits_.AnswerTo(*question)
                                   : BlameAnswer{.says = "was asked what it cannot read"});
}

absl::Status Engine::Impl::Finish() {
  Lock lock = executor_.Hold();
  ProgramState& program = executor_.guarded().program;
  ComputingSide& computing = executor_.guarded().computing;
  RZ_RETURN_IF_ERROR(gate_.WaitForNext(lock));
  if (!computing.next.empty()) {
    const Op& next = executor_.OpOf(computing.next.front());
    return FailedPrecondition("finished before the program: \"", ToString(next),
                              "\" is still to be computed");
  }
  const auto done = [&] {
    computing.waiting_for = absl::StrCat("the last operations: ", program.Unfinished(3));
    return program.AllDone();
  };
  RZ_RETURN_IF_ERROR(executor_.WaitFor(lock, "for the program's last operations", done, nullptr));
  RZ_RETURN_IF_ERROR(Drain(lock));
  RZ_RETURN_IF_ERROR(norms_.Gather(lock, waits_));
  Clear();
  executor_.guarded().finished = true;
  if (options_.transport == nullptr) return absl::OkStatus();
  return options_.transport->Close();
}

absl::Status Engine::Impl::Drain(Lock& lock) {
  const Deadline deadline(options_.wait_timeout);
  while (options_.transport != nullptr) {
    const std::vector<Undelivered> waiting = options_.transport->undelivered();
    if (waiting.empty()) break;
    RZ_RETURN_IF_ERROR(options_.transport->status());
    if (deadline.over()) {
      const std::string words =
          absl::StrCat("waited for its last ", waiting.size(),
                       " messages to be taken, the first by worker ", waiting[0].to.value);
      executor_.Fail(waits_.Blame(lock, words, {.next = waiting[0].to}));
      return executor_.guarded().error;
    }
    executor_.changed().wait_for(lock, std::chrono::milliseconds(2));
  }
  return absl::OkStatus();
}

void Engine::Impl::Abort(const absl::Status& why) {
  const Lock lock = executor_.Hold();
  executor_.Fail(why);
}

double Engine::GradientSquares(Iteration t) const {
  const Impl::Lock lock = impl_->executor_.Hold();
  const bool finished = impl_->executor_.guarded().finished;
  return finished ? impl_->norms_.SquaresAtTheEnd(t) : impl_->norms_.SquaresHere(t);
}

std::optional<StageId> Engine::NonfiniteStage(Iteration t) const {
  const Impl::Lock lock = impl_->executor_.Hold();
  return impl_->norms_.NonfiniteStage(t);
}

double Engine::LossScaleOf(Iteration t) const {
  const Impl::Lock lock = impl_->executor_.Hold();
  return impl_->norms_.ScaleOf(t);
}

absl::Status Engine::status() const {
  const Impl::Lock lock = impl_->executor_.Hold();
  return impl_->executor_.guarded().error;
}

int Engine::iterations() const {
  const Impl::Lock lock = impl_->executor_.Hold();
  return impl_->executor_.plan_so_far().iterations;
}

EngineStats Engine::stats() const {
  const Impl::Lock lock = impl_->executor_.Hold();
  EngineStats stats = impl_->executor_.guarded().stats;
  stats.skipped_updates = impl_->norms_.scale().skipped;
  stats.loss_scale = impl_->norms_.scale().scale;
  if (const Transport* transport = impl_->executor_.transport(); transport != nullptr) {
    stats.transport = transport->stats();
    for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
      stats.transport.bytes_sent[kind] += impl_->messages_.lent_bytes()[kind];
    }
  }
  return stats;
}

}  // namespace ringzero
