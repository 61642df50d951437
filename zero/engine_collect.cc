// Collections: what owners keep for them, and what whoever collects is shown, part by part.
#include <utility>

#include "base/status.h"
#include "zero/engine_impl.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer_state.h"

namespace ringzero {
namespace {

CollectedPart::Kind KindOf(Copy part) {
  switch (part) {
    case Copy::kGradient: return CollectedPart::Kind::kGradient;
    case Copy::kState: return CollectedPart::Kind::kState;
    default: return CollectedPart::Kind::kParameters;
  }
}

}  // namespace

StageId Engine::Impl::NextStage() const {
  return compute_.empty() ? kNoStage : state_.at(compute_.front()).linked.op.stage;
}

absl::StatusOr<CollectedPart> Engine::Impl::Collect() {
  Lock lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const int64_t number, Expect(OpKind::kCollect, NextStage()));
  RZ_RETURN_IF_ERROR(WaitUntilReady(lock, number));
  SetBegun();
  const LinkedOp& linked = state_.at(number).linked;
  CollectedPart part{.kind = KindOf(linked.op.copy), .stage = linked.op.stage};
  if (part.kind != CollectedPart::Kind::kParameters) {
    part.values = state_.at(linked.takes).owned.data();
    return part;
  }
  for (StageCopy& copy : CopiesOf(linked)) part.parameters = std::move(copy.parameters);
  const auto snapshot = snapshots_.find({linked.op.iteration.value, linked.op.stage.value});
  if (snapshot != snapshots_.end()) part.statistics = snapshot->second;
  return part;
}

absl::Status Engine::Impl::EndCollect() {
  StageId stage = kNoStage;
  {
    Lock lock(mutex_);
    stage = NextStage();
  }
  return End(OpKind::kCollect, stage, [this](const Op&) { TakeOver(compute_.front()).Reset(); });
}

void Engine::Impl::SubmitKeep(int64_t number) {
  const LinkedOp& linked = state_.at(number).linked;
  const Op op = linked.op;
  const bool gradient = op.copy == Copy::kGradient;
  // The update that takes the sum, or changes the state, waits for this (sharding/link.h): both are
  // read without the lock.
  const std::byte* sum = gradient ? CompleteSum(linked) : nullptr;
  const StageOptimizer* optimizer = gradient ? nullptr : &owned_.optimizer(op.stage);
  const double divisor = SumDivisor(Iteration(op.iteration.value - 1));
  RunOnPool(number, [this, number, op, sum, optimizer, divisor]() -> absl::Status {
    const StageLayout& layout = options_.layouts[op.stage.value];
    const size_t bytes =
        MessageBytes({.channel = Channel::kStates, .copy = op.copy, .stage = op.stage});
    RZ_ASSIGN_OR_RETURN(Buffer kept, AllocateSum(static_cast<int64_t>(bytes)));
    if (optimizer == nullptr) {
      AverageSum(layout, sum, float(divisor), kept.data());
    } else {
      CopyState(StateLayout::Make(options_.optimizer, layout), *optimizer, kept.data());
    }
    Lock lock(mutex_);
    if (error_.ok()) state_.at(number).owned = std::move(kept);
    return absl::OkStatus();
  });
}

}  // namespace ringzero
