// Versions and updates of owned stages.
#include "zero/owned_stages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/label.h"
#include "sharding/samples.h"
#include "sharding/schedule.h"
#include "zero/update/kernels.h"

namespace ringzero {
namespace {

// Masters as they travel.
void RoundParameters(const StageLayout& layout, const std::byte* masters, std::byte* version) {
  for (const ParameterSpec& spec : layout.parameters) {
    NarrowPass(WireTypeOf(layout.parameter_type),
               reinterpret_cast<const float*>(masters + spec.master_offset_bytes),
               reinterpret_cast<uint16_t*>(version + spec.offset_bytes), spec.numel);
  }
}

// The memory of a version that nobody reads any more.
absl::StatusOr<Buffer> TakeBack(std::map<int, SharedBuffer>& buffers, int version, StageId stage) {
  const auto overwritten = buffers.find(version);
  RZ_CHECK(overwritten != buffers.end(),
           absl::StrCat("stage ", stage.value, " lacks the version to overwrite"));
  absl::StatusOr<Buffer> unsealed = std::move(overwritten->second).Unseal();
  if (!unsealed.ok()) {
    return FailedPrecondition("over version ", version, ": ", unsealed.status().message());
  }
  buffers.erase(overwritten);
  return unsealed;
}

}  // namespace

PendingUpdate::PendingUpdate(StageId stage, Iteration iteration, const StageLayout& layout,
                             StageOptimizer* optimizer, double divisor, const UpdateTerms& terms,
                             Memory memory)
    : stage_(stage),
      iteration_(iteration),
      layout_(layout),
      optimizer_(optimizer),
      divisor_(divisor),
      terms_(terms),
      memory_(std::move(memory)) {}

void PendingUpdate::CarryOver() {
  if (memory_.theta) std::memcpy(memory_.out.data(), memory_.theta.data(), memory_.out.size());
  if (memory_.wire) RoundParameters(layout_, memory_.out.data(), memory_.wire.data());
}

bool PendingUpdate::Step() {
  if (terms_.skipped) {
    CarryOver();
    return false;
  }
  const UpdateInput input{.iteration = terms_.number,
                          .divisor = divisor_,
                          .loss_scale = terms_.loss_scale,
                          .clip = terms_.clip,
                          .theta = memory_.theta ? memory_.theta.data() : memory_.out.data(),
                          .sum = memory_.sum.data(),
                          .wire = memory_.wire ? memory_.wire.data() : nullptr,
                          .predicted = memory_.predicted ? memory_.predicted.data() : nullptr,
                          .scratch = memory_.scratch};
  if (next_block_ == 0) optimizer_->Begin(input);
  const std::vector<UpdateBlock>& blocks = optimizer_->blocks();
  if (next_block_ < blocks.size() && counts_squares_) {
    squares_ += optimizer_->SumOfSquares(blocks[next_block_], input);
  }
  if (next_block_ < blocks.size()) {
    optimizer_->Block(blocks[next_block_], input, memory_.out.data());
  }
  return ++next_block_ < blocks.size();
}

OwnedStages::OwnedStages(const Plan& plan, const std::vector<StageLayout>& layouts,
                         const OptimizerOptions& optimizer)
    : plan_(plan), layouts_(layouts), optimizer_(optimizer) {}

absl::Status OwnedStages::Initialize(StageId stage, const Allocate& allocate,
                                     const std::function<absl::Status(StageId, std::byte*)>& fill) {
  const StageLayout& layout = layouts_[stage.value];
  Stage& owned = stages_[stage.value];
  const auto take = [&](int64_t bytes, int64_t& counted) -> absl::StatusOr<Buffer> {
    RZ_ASSIGN_OR_RETURN(Buffer memory, allocate(static_cast<size_t>(bytes)));
    counted += static_cast<int64_t>(memory.size());
    return memory;
  };
  const bool apart = layout.master_bytes > 0;
  if (layout.parameter_bytes > 0) {
    const int64_t bytes = apart ? layout.master_bytes : layout.parameter_bytes;
    RZ_ASSIGN_OR_RETURN(Buffer first, take(bytes, master_bytes_));
    if (fill) RZ_RETURN_IF_ERROR(fill(stage, first.data()));
    if (apart) {
      RZ_ASSIGN_OR_RETURN(Buffer version, take(layout.parameter_bytes, version_bytes_));
      if (fill) RoundParameters(layout, first.data(), version.data());
      owned.masters[0] = std::move(first).Seal();
      first = std::move(version);
    }
    owned.versions[0] = std::move(first).Seal();
  }
  if (layout.sum_bytes == 0 || !plan_.exchange) return absl::OkStatus();
  if (!plan_.updates_in_place()) {
    RZ_ASSIGN_OR_RETURN(owned.spare, take(layout.parameter_bytes, version_bytes_));
  }
  if (IsPredicted(plan_, stage)) {
    RZ_ASSIGN_OR_RETURN(Buffer predicted, take(layout.parameter_bytes, version_bytes_));
    RZ_ASSIGN_OR_RETURN(owned.spare_prediction, take(layout.parameter_bytes, version_bytes_));
    std::memcpy(predicted.data(), owned.versions[0].data(), predicted.size());
    owned.predictions[1] = std::move(predicted).Seal();
  }
  if (apart && plan_.has_two_masters()) {
    RZ_ASSIGN_OR_RETURN(owned.spare_masters, take(layout.master_bytes, version_bytes_));
  }
  owned.optimizer = std::make_unique<StageOptimizer>(optimizer_, layout);
  const auto scratch = static_cast<size_t>(owned.optimizer->scratch_bytes());
  if (scratch > static_cast<size_t>(scratch_bytes())) scratch_ = MakeHeapBuffer(scratch);
  return absl::OkStatus();
}

SharedBuffer OwnedStages::Find(const std::map<int, SharedBuffer>& buffers, StageId stage,
                               Version version) {
  const auto found = buffers.find(version.value < 0 ? 0 : version.value);
  RZ_CHECK(found != buffers.end(),
           absl::StrCat("stage ", stage.value, " has no version ", version.value));
  return found->second;
}

SharedBuffer OwnedStages::Get(StageId stage, Version version) const {
  const auto owned = stages_.find(stage.value);
  RZ_CHECK(owned != stages_.end(), absl::StrCat("stage ", stage.value, " is not ours"));
  if (!IsPrediction(version)) return Find(owned->second.versions, stage, version);
  return Find(owned->second.predictions, stage, Version(std::max(LabelNumber(version), 1)));
}

SharedBuffer OwnedStages::Masters(StageId stage, Version version) const {
  if (layouts_[stage.value].master_bytes == 0) return Get(stage, version);
  return Find(stages_.at(stage.value).masters, stage, version);
}

int OwnedStages::OverwrittenMasters(Iteration iteration) const {
  return plan_.has_two_masters() ? OverwrittenVersion(plan_, iteration).value : iteration.value;
}

bool OwnedStages::MayOverwrite(StageId stage, Iteration iteration) const {
  const Stage& owned = stages_.at(stage.value);
  const auto free = [](const std::map<int, SharedBuffer>& buffers, int version) {
    const auto overwritten = buffers.find(version);
    return overwritten == buffers.end() || overwritten->second.holders() == 1;
  };
  return free(owned.versions, OverwrittenVersion(plan_, iteration).value) &&
         free(owned.masters, OverwrittenMasters(iteration)) &&
         free(owned.predictions, iteration.value);
}

absl::StatusOr<std::unique_ptr<PendingUpdate>> OwnedStages::BeginUpdate(StageId stage,
                                                                        Iteration iteration,
                                                                        const UpdateTerms& terms,
                                                                        SharedBuffer sum) {
  Stage& owned = stages_.at(stage.value);
  const bool spares = !plan_.updates_in_place() && iteration.value == 0;
  PendingUpdate::Memory memory{.sum = std::move(sum),
                               .scratch = scratch_ ? scratch_.data() : nullptr};
  Buffer version = std::move(owned.spare);
  if (!spares) {
    RZ_ASSIGN_OR_RETURN(
        version, TakeBack(owned.versions, OverwrittenVersion(plan_, iteration).value, stage));
  }
  memory.predicted = std::move(owned.spare_prediction);
  if (IsPredicted(plan_, stage) && iteration.value > 0) {
    RZ_ASSIGN_OR_RETURN(memory.predicted, TakeBack(owned.predictions, iteration.value, stage));
  }
  bool in_place = plan_.updates_in_place();
  if (owned.masters.empty()) {
    memory.out = std::move(version);
  } else {
    memory.wire = std::move(version);
    memory.out = std::move(owned.spare_masters);
    in_place = !plan_.has_two_masters();
    if (in_place || !spares) {
      RZ_ASSIGN_OR_RETURN(memory.out,
                          TakeBack(owned.masters, OverwrittenMasters(iteration), stage));
    }
  }
  if (!in_place) memory.theta = Masters(stage, Version(iteration.value));
  return std::make_unique<PendingUpdate>(stage, iteration, layouts_[stage.value],
                                         owned.optimizer.get(), DivisorOf(plan_, iteration), terms,
                                         std::move(memory));
}

SharedBuffer OwnedStages::Publish(std::unique_ptr<PendingUpdate> update) {
  PendingUpdate::Memory memory = std::move(update->memory_);
  memory.theta.Reset();
  Stage& stage = stages_.at(update->stage_.value);
  const int iteration = update->iteration_.value;
  const bool apart = static_cast<bool>(memory.wire);
  stage.versions[iteration + 1] = std::move(apart ? memory.wire : memory.out).Seal();
  if (apart) stage.masters[iteration + 1] = std::move(memory.out).Seal();
  if (memory.predicted) {
    stage.predictions[iteration + 2] = std::move(memory.predicted).Seal();
  }
  if (!update->counts_squares_) return std::move(memory.sum);
  const double divisor = update->divisor_ * update->terms_.loss_scale;
  stage.squares[iteration] = update->squares_ / divisor / divisor;
  stage.squares.erase(stage.squares.begin(), stage.squares.lower_bound(iteration - 2));
  return std::move(memory.sum);
}

double OwnedStages::GradientSquares(StageId stage, Iteration iteration) const {
  const auto owned = stages_.find(stage.value);
  if (owned == stages_.end()) return 0;
  const auto squares = owned->second.squares.find(iteration.value);
  return squares == owned->second.squares.end() ? 0 : squares->second;
}

int64_t OwnedStages::optimizer_state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [stage, owned] : stages_) {
    if (owned.optimizer) bytes += owned.optimizer->state_bytes();
  }
  return bytes;
}

const StageOptimizer& OwnedStages::optimizer(StageId stage) const {
  return *stages_.at(stage.value).optimizer;
}

void OwnedStages::Clear() { stages_.clear(); }

}  // namespace ringzero
