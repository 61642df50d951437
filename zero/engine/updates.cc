// Updates and copies of sums and states.
#include "zero/engine/updates.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/status.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"
#include "zero/engine_options.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {
namespace {

// Masters as they travel.
void RoundParameters(const StageLayout& layout, const std::byte* masters, std::byte* version) {
  for (const ParameterSpec& spec : layout.parameters) {
    NarrowPass(layout.parameter_type,
               reinterpret_cast<const float*>(masters + spec.master_offset_bytes),
               reinterpret_cast<uint16_t*>(version + spec.offset_bytes), spec.numel);
  }
}

bool IsWritten(const Use& use) {
  return use.role == Role::kMade || use.role == Role::kMasters || use.role == Role::kPrediction;
}

}  // namespace

bool PendingUpdate::Step() {
  if (next_ == 0) optimizer_.Begin(update_.input());
  const std::vector<UpdateBlock>& blocks = optimizer_.blocks();
  if (next_ >= blocks.size()) return false;
  if (squares_.has_value()) *squares_ += optimizer_.SumOfSquares(blocks[next_], update_.input());
  update_.Do(next_++);
  return next_ < blocks.size();
}

std::optional<double> PendingUpdate::Squares() const {
  if (!squares_.has_value()) return std::nullopt;
  const double divisor = update_.input().divisor * update_.input().loss_scale;
  return *squares_ / divisor / divisor;
}

absl::Status OwnedStages::InitializeVersions(StageId stage, const EngineOptions& options) {
  const StageLayout& layout = layouts_[stage.value];
  const std::vector<Version> labels = FirstVersions(plan_, stage);
  const MemoryBlock newest = VersionBlock(plan_, stage, labels[0]);
  const MemoryBlock apart = MastersBlock(plan_, stage, labels[0]);
  std::byte* const version = blocks_.Write(newest);
  std::byte* const masters = blocks_.Write(apart);
  if (options.initialize) RZ_RETURN_IF_ERROR(options.initialize(stage, masters));
  if (options.initialize && masters != version) RoundParameters(layout, masters, version);
  for (const MemoryBlock& block : {newest, apart}) blocks_.StampAt(block).Set(StampOf(labels[0]));
  for (size_t i = 1; i < labels.size(); ++i) {
    const MemoryBlock block = VersionBlock(plan_, stage, labels[i]);
    std::byte* const other = blocks_.Write(block);
    absl::Status found = absl::NotFoundError("a run that begins with its first version");
    if (plan_.first_iteration > 0) found = options.beginning.version(stage, labels[i], other);
    if (absl::IsNotFound(found)) {
      std::memcpy(other, version, static_cast<size_t>(layout.parameter_bytes));
    } else {
      RZ_RETURN_IF_ERROR(found);
    }
    blocks_.StampAt(block).Set(StampOf(labels[i]));
    files_.Seal(stage, other, labels[i]);
  }
  files_.Seal(stage, version, labels[0]);
  return absl::OkStatus();
}

absl::Status OwnedStages::Initialize(StageId stage, const EngineOptions& options) {
  const StageLayout& layout = layouts_[stage.value];
  if (layout.parameter_bytes > 0) RZ_RETURN_IF_ERROR(InitializeVersions(stage, options));
  if (layout.sum_bytes == 0 || !plan_.exchange) return absl::OkStatus();
  const MemoryBlock state{.kind = BlockKind::kState, .stage = stage};
  std::span<std::byte> moments;
  if (blocks_.Has(state)) moments = blocks_.Bytes(state);
  Stage& owned = stages_[stage.value];
  owned.optimizer = std::make_unique<StageOptimizer>(options.optimizer, layout, moments,
                                                     streams_.PiecesOf(stage));
  streams_.Show(stage, *owned.optimizer);
  const bool has_masters = plan_.stage(stage).streams_masters;
  if (has_masters) {
    PutMasters(layout, blocks_.Read(MastersBlock(plan_, stage, Version(0))), *owned.optimizer);
  }
  const auto scratch = static_cast<size_t>(owned.optimizer->scratch_bytes());
  if (scratch > static_cast<size_t>(scratch_bytes())) scratch_ = MakeHeapBuffer(scratch);
  if (plan_.first_iteration > 0) {
    const StateLayout shown = StateLayout::Make(options.optimizer, layout);
    Buffer saved = MakeHeapBuffer(static_cast<size_t>(shown.bytes));
    RZ_RETURN_IF_ERROR(options.beginning.state(stage, saved.data()));
    PutState(shown, saved.data(), *owned.optimizer);
  }
  if (plan_.first_iteration > 0 || has_masters) streams_.Adopt(stage);
  return absl::OkStatus();
}

absl::Status OwnedStages::LookedAt(const SavedPart& part) const {
  absl::Status as_left = LookedAt(part.stage);
  as_left.Update(files_.Check(part.stage, part.masters, part.version));
  for (const auto& [label, values] : part.others) {
    as_left.Update(files_.Check(part.stage, values, label));
  }
  return as_left;
}

std::unique_ptr<PendingUpdate> OwnedStages::BeginUpdate(const Instruction& update,
                                                        const UpdateTerms& terms,
                                                        const std::byte* sum) {
  UpdateInput input{.iteration = terms.number,
                    .divisor = DivisorOf(plan_, update.iteration),
                    .loss_scale = terms.loss_scale,
                    .clip = terms.clip,
                    .skipped = terms.skipped,
                    .sum = sum,
                    .scratch = scratch_ ? scratch_.data() : nullptr};
  std::byte* made = nullptr;
  std::byte* masters = nullptr;
  for (const Use& use : update.uses) {
    if (IsWritten(use)) blocks_.StampAt(use.block).Set(Stamp::kBeingWritten);
    if (use.role == Role::kBefore) input.theta = blocks_.Read(use.block);
    if (use.role == Role::kMade) made = blocks_.Write(use.block);
    if (use.role == Role::kMasters) masters = blocks_.Write(use.block);
    if (use.role == Role::kPrediction) input.predicted = blocks_.Write(use.block);
  }
  const bool made_is_master = plan_.stage(update.stage).master_bytes == 0;
  std::byte* const out = made_is_master ? made : masters;  // null: they are in the state
  if (!made_is_master) input.wire = made;
  if (input.theta == nullptr) input.theta = out;
  StageOptimizer& optimizer = *stages_.at(update.stage.value).optimizer;
  return std::make_unique<PendingUpdate>(update.stage, optimizer, streams_, input, out);
}

void OwnedStages::EndUpdate(const PendingUpdate& update, const Instruction& op) {
  for (const Use& use : op.uses) {
    const bool predicts = use.role == Role::kPrediction;
    const Version made = predicts ? Prediction(op.iteration.value + 2) : op.version;
    if (IsWritten(use)) blocks_.StampAt(use.block).Set(StampOf(made));
  }
  const std::optional<double> counted = update.Squares();
  if (!counted.has_value()) return;
  std::map<int, double>& squares = stages_.at(op.stage.value).squares;
  squares[op.iteration.value] = *counted;
  squares.erase(squares.begin(), squares.lower_bound(op.iteration.value - 2));
}

double OwnedStages::GradientSquares(StageId stage, Iteration iteration) const {
  const auto owned = stages_.find(stage.value);
  if (owned == stages_.end()) return 0;
  const auto squares = owned->second.squares.find(iteration.value);
  return squares == owned->second.squares.end() ? 0 : squares->second;
}

using Writer = Executor::Writer;

void Updates::Start(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  GoOn(std::make_shared<Running>(
      Running{number, op, sums_.Read(op), SlowedUpdate(executor_.options().update_slowness)}));
}

void Updates::GoOn(std::shared_ptr<Running> running) {
  executor_.pool().Update([this, running = std::move(running)] { return DoBlock(running); });
}

bool Updates::DoBlock(const std::shared_ptr<Running>& running) {
  const EngineOptions& options = executor_.options();
  const Instruction& op = running->op;
  std::unique_ptr<PendingUpdate>& update = running->update;
  if (update == nullptr) {
    const Executor::Lock lock = executor_.Hold();
    if (!sums_.GoesOnComplete(op)) return false;
    update = owned_.BeginUpdate(op, norms_.TermsOf(op), running->sum);
    if (options.gradient_norms && !options.plan.counts_squares()) update->CountSquares();
    executor_.recorder().Record(Writer::kPool, {EventKind::kBegin, op});
  }
  if (!update->Ready([this, running] { GoOn(running); })) return false;
  const auto step = [&] { return executor_.Costed(op, 0, [&] { return update->Step(); }); };
  if (running->slowed.Step(step)) return true;
  if (options.costs != nullptr) options.costs->Count(op, 0, 1);
  executor_.recorder().Record(Writer::kPool, {EventKind::kEnd, op});
  const Executor::Lock lock = executor_.Hold();
  if (!sums_.GoesOnComplete(op)) return false;
  sums_.Free(op);
  owned_.EndUpdate(*update, op);
  update.reset();
  executor_.Complete(running->number);
  return false;
}

void Updates::StartKeep(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const bool gradient = op.copy == Copy::kGradient, masters = op.copy == Copy::kCollection;
  // The update that takes the sum, or changes the state, waits for this (sharding/program/link.h):
  // both are read without the lock.
  const std::byte* sum = gradient ? sums_.Read(op) : nullptr;
  const StageOptimizer* optimizer = gradient ? nullptr : &owned_.optimizer(op.stage);
  const double divisor = gradient ? norms_.SumDivisor(Iteration(op.iteration.value - 1)) : 1;
  const MemoryBlock& to = op.uses[1].block;
  std::byte* const kept = blocks_.Write(to);
  const Stamp stamp = blocks_.StampAt(to);
  stamp.Set(Stamp::kBeingWritten);
  executor_.RunOnPool(number, [=, this]() -> absl::Status {
    const StageLayout& layout = executor_.options().layouts[op.stage.value];
    if (optimizer == nullptr) {
      AverageSum(layout, sum, float(divisor), kept);
      const Executor::Lock lock = executor_.Hold();
      RZ_RETURN_IF_ERROR(sums_.CheckComplete(op));
      return absl::OkStatus();
    }
    if (masters) {
      CopyMasters(layout, *optimizer, kept);
      stamp.Set(StampOf(Version(op.iteration.value)));
    } else {
      CopyState(StateLayout::Make(executor_.options().optimizer, layout), *optimizer, kept);
    }
    return owned_.LookedAt(op.stage);
  });
}

void Updates::StartSave(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const EngineOptions& options = executor_.options();
  SavedPart part{.stage = op.stage, .version = Version(op.iteration.value)};
  std::span<std::byte> receipt;
  const std::vector<Version> labels = SavedVersions(options.plan, op.stage, part.version);
  const bool apart = !options.plan.stage(op.stage).streams_masters;
  for (const Use& use : op.uses) {
    if (use.block.kind == BlockKind::kTier) {  // the optimizer shows it, too
      // Where everybody streams all stages, nobody saves all of them.
      if (!options.plan.spreads_sums()) part.streams = &owned_.streams();
      continue;
    }
    if (use.block.kind == BlockKind::kState) {  // of an optimizer that may have none
      part.optimizer = &owned_.optimizer(op.stage);
      continue;
    }
    const std::byte* const memory = blocks_.Read(use.block);
    if (use.role == Role::kReceipt) {
      receipt = {blocks_.Write(use.block), static_cast<size_t>(kReceiptBytes)};
      if (use.how == How::kWrite) std::ranges::fill(receipt, std::byte{0});
    } else if (op.copy == Copy::kCollection) {
      part.statistics = memory;
    } else if (part.masters == nullptr && apart) {
      part.masters = memory;
    } else {
      part.others.push_back({labels.at(1 + part.others.size()), memory});
    }
  }
  options.saver->Save(part, receipt, [this, op, part, end = executor_.BeginElsewhere(number)] {
    const bool statistics = op.copy == Copy::kCollection;
    const absl::Status looked = statistics ? absl::OkStatus() : owned_.LookedAt(part);
    if (looked.ok()) return end();
    const Executor::Lock lock = executor_.Hold();
    executor_.FailAt(op, looked);
  });
}

void Updates::StartCommit(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  std::vector<std::span<const std::byte>> receipts;
  for (const Use& use : op.uses) {
    if (use.role != Role::kReceipt) continue;
    receipts.push_back({blocks_.Read(use.block), static_cast<size_t>(kReceiptBytes)});
  }
  executor_.options().saver->Commit(Version(op.iteration.value), norms_.ScalarsBefore(op.iteration),
                                    receipts, executor_.BeginElsewhere(number));
}

}  // namespace ringzero
