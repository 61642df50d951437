// Versions and updates of owned stages.
#include "zero/owned_stages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/schedule.h"

namespace ringzero {

PendingUpdate::PendingUpdate(StageId stage, Iteration iteration, StageOptimizer* optimizer,
                             int divisor, SharedBuffer theta, SharedBuffer sum, Buffer out)
    : stage_(stage),
      iteration_(iteration),
      optimizer_(optimizer),
      divisor_(divisor),
      theta_(std::move(theta)),
      sum_(std::move(sum)),
      out_(std::move(out)) {}

bool PendingUpdate::Step() {
  const UpdateInput input{.iteration = iteration_.value,
                          .divisor = divisor_,
                          .theta = theta_ ? theta_.data() : out_.data(),
                          .sum = sum_.data()};
  if (next_block_ == 0) optimizer_->Begin(input);
  const std::vector<UpdateBlock>& blocks = optimizer_->blocks();
  if (next_block_ < blocks.size() && counts_squares_) {
    squares_ += optimizer_->SumOfSquares(blocks[next_block_], input);
  }
  if (next_block_ < blocks.size()) optimizer_->Block(blocks[next_block_], input, out_.data());
  return ++next_block_ < blocks.size();
}

OwnedStages::OwnedStages(const Plan& plan, const std::vector<StageLayout>& layouts,
                         const OptimizerOptions& optimizer)
    : plan_(plan), layouts_(layouts), optimizer_(optimizer) {}

absl::Status OwnedStages::Initialize(StageId stage, const Allocate& allocate,
                                     const std::function<absl::Status(StageId, std::byte*)>& fill) {
  const StageLayout& layout = layouts_[stage.value];
  Stage& owned = stages_[stage.value];
  const size_t bytes = static_cast<size_t>(layout.parameter_bytes);
  if (bytes > 0) {
    RZ_ASSIGN_OR_RETURN(Buffer first, allocate(bytes));
    master_bytes_ += static_cast<int64_t>(first.size());
    if (fill) RZ_RETURN_IF_ERROR(fill(stage, first.data()));
    owned.versions[0] = std::move(first).Seal();
  }
  if (layout.sum_bytes == 0 || !plan_.exchange) return absl::OkStatus();
  if (plan_.rule != Rule::kDp) {
    RZ_ASSIGN_OR_RETURN(owned.spare, allocate(bytes));
    version_bytes_ += static_cast<int64_t>(owned.spare.size());
  }
  owned.optimizer = std::make_unique<StageOptimizer>(optimizer_, layout);
  return absl::OkStatus();
}

SharedBuffer OwnedStages::Get(StageId stage, Version version) const {
  const auto owned = stages_.find(stage.value);
  RZ_CHECK(owned != stages_.end(), absl::StrCat("stage ", stage.value, " is not ours"));
  const auto found = owned->second.versions.find(version.value < 0 ? 0 : version.value);
  RZ_CHECK(found != owned->second.versions.end(),
           absl::StrCat("stage ", stage.value, " has no version ", version.value));
  return found->second;
}

bool OwnedStages::MayOverwrite(StageId stage, Iteration iteration) const {
  const auto& versions = stages_.at(stage.value).versions;
  const auto overwritten = versions.find(OverwrittenVersion(plan_, iteration).value);
  return overwritten == versions.end() || overwritten->second.holders() == 1;
}

absl::StatusOr<std::unique_ptr<PendingUpdate>> OwnedStages::BeginUpdate(StageId stage,
                                                                        Iteration iteration,
                                                                        SharedBuffer sum) {
  Stage& owned = stages_.at(stage.value);
  const bool in_place = plan_.rule == Rule::kDp;
  Buffer out;
  if (!in_place && iteration.value == 0) {
    out = std::move(owned.spare);
  } else {
    const auto overwritten = owned.versions.find(OverwrittenVersion(plan_, iteration).value);
    RZ_CHECK(overwritten != owned.versions.end(),
             absl::StrCat("stage ", stage.value, " lacks the version to overwrite"));
    absl::StatusOr<Buffer> unsealed = std::move(overwritten->second).Unseal();
    if (!unsealed.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("over version ", overwritten->first, ": ", unsealed.status().message()));
    }
    out = *std::move(unsealed);
    owned.versions.erase(overwritten);
  }
  SharedBuffer theta = in_place ? SharedBuffer() : Get(stage, Version(iteration.value));
  return std::make_unique<PendingUpdate>(stage, iteration, owned.optimizer.get(),
                                         plan_.workers * plan_.laps, std::move(theta),
                                         std::move(sum), std::move(out));
}

void OwnedStages::Publish(std::unique_ptr<PendingUpdate> update) {
  update->sum_.Reset();
  update->theta_.Reset();
  Stage& stage = stages_.at(update->stage_.value);
  const int iteration = update->iteration_.value;
  stage.versions[iteration + 1] = std::move(update->out_).Seal();
  if (!update->counts_squares_) return;
  stage.squares[iteration] = update->squares_ / update->divisor_ / update->divisor_;
  stage.squares.erase(stage.squares.begin(), stage.squares.lower_bound(iteration - 2));
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
