// Names blocks: what a block's index is, and where a worker has a copy.
#include "sharding/program/operands.h"

#include <algorithm>

namespace ringzero {
namespace {

// Injections and collected copies come from many owners, a few at a time: one pool for all.
bool IsFromMany(Channel channel) {
  return channel == Channel::kInject || channel == Channel::kCollection;
}

// θ_{-1} and θ_0 are the same values in the same memory.
int BufferOf(const Plan& plan, Version v) {
  return plan.updates_in_place() ? 0 : std::max(v.value, 0) % 2;
}

}  // namespace

MemoryBlock VersionBlock(const Plan& plan, StageId j, Version v) {
  if (IsPrediction(v)) {
    return {.kind = BlockKind::kPrediction, .stage = j, .index = LabelNumber(v) % 2};
  }
  return {.kind = BlockKind::kVersion, .stage = j, .index = BufferOf(plan, v)};
}

MemoryBlock MastersBlock(const Plan& plan, StageId j, Version v) {
  if (plan.stage(j).master_bytes == 0) return VersionBlock(plan, j, v);
  if (plan.stage(j).streams_masters) return {.kind = BlockKind::kMasters};
  return {.kind = BlockKind::kMasters,
          .stage = j,
          .index = plan.has_two_masters() ? BufferOf(plan, v) : 0};
}

int BlocksOf(const Plan& plan, BlockKind kind, Channel channel) {
  const int slots = plan.window > 0 ? plan.window : LeastWindow(plan);
  switch (kind) {
    case BlockKind::kSlot: return IsFromMany(channel) ? 2 * slots : slots;
    case BlockKind::kToken:
    case BlockKind::kClock: return slots;
    case BlockKind::kBegun: return std::max(2, std::min(slots, plan.stage_count()));
    case BlockKind::kHeld: return plan.updates_in_place() ? 1 : 2;
    case BlockKind::kStageSlot:
    case BlockKind::kHeldPrediction:
    case BlockKind::kSnapshot: return 2;
    case BlockKind::kNorm: return 4;  // a norm is read until two iterations later
    default: return 1;
  }
}

int Operands::Ranks::Of(Version v) {
  constexpr size_t kKept = 4;
  const auto [rank, first] = ranks_.try_emplace(v, next_);
  const int found = rank->second;
  if (first) ++next_;
  if (ranks_.size() > kKept) ranks_.erase(ranks_.begin());
  return found;
}

// Read by a later stage, or by the backward as well as by the forward.
bool Operands::IsLong(StageId j, Copy copy) const {
  const bool retained = j.value >= plan_.stage_count() - plan_.retain;
  return plan_.last_use(j) != j ||
         (copy == Copy::kForward && retained && plan_.stage(j).has_backward);
}

Uses Operands::Parameters(StageId j, Version v, Copy copy) const {
  if (plan_.stage(j).parameter_bytes == 0) return {};
  const auto use = [](const MemoryBlock& block) { return Uses{Reading(Role::kParameters, block)}; };
  if (plan_.has_masters(self_, j)) {
    const bool collects = copy == Copy::kCollection;
    return use(collects ? MastersBlock(plan_, j, v) : VersionBlock(plan_, j, v));
  }
  if (IsHeld(copy)) return use(HeldCopy(j, v));
  if (copy == Copy::kBackward && !HasBackwardCopy(plan_, j)) copy = Copy::kForward;
  return use(copies_.at({copy, j}));
}

MemoryBlock Operands::HeldCopy(StageId j, Version v) const {
  if (IsPrediction(v)) {
    return {.kind = BlockKind::kHeldPrediction, .stage = j, .index = LabelNumber(v) % 2};
  }
  // Held copies of θ_{-1} and θ_0 come apart.
  const int index = plan_.updates_in_place() ? 0 : (v.value + 2) % 2;
  return {.kind = BlockKind::kHeld, .stage = j, .index = index};
}

MemoryBlock Operands::ReceivedCopy(const Op& receive) {
  if (IsHeld(receive.copy)) return HeldCopy(receive.stage, receive.version);
  MemoryBlock block;
  if (IsLong(receive.stage, receive.copy)) {
    int64_t& count = long_copies_[{receive.channel, receive.peer, receive.copy, receive.stage}];
    block = {.kind = BlockKind::kStageSlot,
             .channel = receive.channel,
             .copy = receive.copy,
             .stage = receive.stage,
             .from = receive.peer,
             .index = Rest(count++, 2)};
  } else {
    block = Slot(receive.channel, receive.peer);
  }
  copies_[{receive.copy, receive.stage}] = block;
  return block;
}

MemoryBlock Operands::Slot(Channel channel, WorkerId from) {
  if (IsFromMany(channel)) from = kNoWorker;
  const int slots = BlocksOf(plan_, BlockKind::kSlot, channel);
  return {.kind = BlockKind::kSlot,
          .channel = channel,
          .from = from,
          .index = Rest(messages_[{channel, from}]++, slots)};
}

MemoryBlock Operands::BegunSum(StageId j) {
  if (plan_.workers == 1) return sums_[j.value] = {.kind = BlockKind::kSum, .stage = j};
  const int blocks = BlocksOf(plan_, BlockKind::kBegun, Channel::kNone);
  return sums_[j.value] = {.kind = BlockKind::kBegun, .index = Rest(begun_++, blocks)};
}

MemoryBlock Operands::ReceivedSum(const Op& receive) {
  MemoryBlock& sum = sums_[receive.stage.value];
  sum = receive.channel == Channel::kFinished
            ? MemoryBlock{.kind = BlockKind::kFinished, .stage = receive.stage}
            : Slot(receive.channel, receive.peer);
  return sum;
}

MemoryBlock Operands::Losses(Copy copy) const {
  return {.kind = BlockKind::kLosses,
          .copy = copy,
          .index = Rest(losses_[copy == Copy::kEvaluation], 2)};
}

MemoryBlock Operands::Snapshot(StageId j, Version v) {
  return {.kind = BlockKind::kSnapshot, .stage = j, .index = snapshots_.Of(v) % 2};
}

MemoryBlock Operands::Kept(Copy part, StageId j, Version v) {
  return {.kind = BlockKind::kKept, .copy = part, .stage = j, .index = collections_.Of(v) % 2};
}

MemoryBlock Operands::NextToken(BlockKind kind, int before) {
  const int blocks = BlocksOf(plan_, kind, Channel::kToken);
  return {.kind = kind, .stage = StageId(before), .index = Rest(tokens_[{kind, before}]++, blocks)};
}

}  // namespace ringzero
