// Where gradients and sums lie, waits for their memory, and adds.
#include "zero/engine/sums.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "sharding/rules/schedule.h"
#include "zero/gradient_sum.h"

namespace ringzero {
namespace {

// What the gradients of the operation's micro-batch are multiplied by.
float WeightOfMicroBatch(const EngineOptions& options, const Op& op) {
  const int micro_batch = MicroBatchOf(options.plan, options.self, op.lap);
  return static_cast<float>(WeightOf(options.plan, op.iteration, micro_batch));
}

struct Weighing {
  float weight = 1;
  SumRounding rounding;
};

// AddContribution of the gradient, each value multiplied once by the weight, in fp32; by 1: as it
// is.
void AddWeighted(const StageLayout& layout, const GradientPart& part, const Weighing& how,
                 std::byte* sum) {
  GradientValues gradient{part.data, part.type};
  if (how.weight == 1) return AddContribution(layout, part.parameter, gradient, how.rounding, sum);
  const int64_t numel = layout.parameters[part.parameter].numel;
  std::vector<float> weighted(static_cast<size_t>(numel));
  ForValues(part.type, part.data, numel, [&](const float* values, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) weighted[at + i] = values[i] * how.weight;
  });
  AddContribution(layout, part.parameter, {weighted.data()}, how.rounding, sum);
}

}  // namespace

int64_t Sums::AddOf(int64_t op) const {
  const OpState& backward = executor_.guarded().program.at(op);
  for (const int64_t next : backward.next) {
    const LinkedOp& add = executor_.guarded().program.at(next).linked;
    if (add.op.kind == OpKind::kAdd && PlaceOf(add.op) == PlaceOf(backward.linked.op)) return next;
  }
  return kNoOp;
}

const MemoryBlock& Sums::SumOf(const Instruction& op) {
  const auto sum = std::ranges::find(op.uses, Role::kSum, &Use::role);
  RZ_CHECK(sum != op.uses.end(), ToString(op));
  return sum->block;
}

absl::Status Sums::CheckComplete(const Instruction& reader) const {
  const MemoryBlock& sum = SumOf(reader);
  // A collection is named after the version that the update makes.
  const int t = reader.iteration.value - (reader.kind == OpKind::kKeep ? 1 : 0);
  const Plan& plan = executor_.plan();
  const int64_t complete = StampOfSum(plan, t, plan.workers * plan.laps);
  return Annotate(blocks_.StampAt(sum).Check(complete), ToString(sum));
}

bool Sums::GoesOnComplete(const Instruction& reader) {
  if (!executor_.guarded().error.ok()) return false;
  const absl::Status complete = CheckComplete(reader);
  if (!complete.ok()) executor_.FailAt(reader, complete);
  return complete.ok();
}

void Sums::Initialize() {
  const Plan& plan = executor_.plan();
  for (int j = 0; j < plan.stage_count(); ++j) {
    const MemoryBlock sum{.kind = BlockKind::kSum, .stage = StageId(j)};
    blocks_.StampAt(sum).Set(StampOfFreeSum(plan, plan.first_iteration));
  }
}

void Sums::Free(const Instruction& last) {
  const int64_t free = StampOfFreeSum(executor_.plan(), last.iteration.value + 1);
  blocks_.StampAt(SumOf(last)).Set(free);
}

bool Sums::Begins(int64_t op) const {
  const int64_t add = AddOf(op);
  if (add == kNoOp) return false;
  return std::ranges::any_of(executor_.OpOf(add).uses, [](const Use& use) {
    return use.role == Role::kSum && use.how == How::kWrite;
  });
}

int64_t Sums::Missing(int64_t op) const {
  return executor_.guarded().program.FirstUnfinished(AddOf(op), op);
}

absl::Status Sums::Begin(int64_t op) {
  const Instruction& add = executor_.OpOf(AddOf(op));
  const MemoryBlock& sum = SumOf(add);
  const Stamp stamp = blocks_.StampAt(sum);
  const int t = add.iteration.value;
  const absl::Status free = stamp.Check(StampOfFreeSum(executor_.plan(), t));
  if (!free.ok()) {
    executor_.FailAt(add, Annotate(free, ToString(sum)));
    return executor_.guarded().error;
  }
  stamp.Set(Stamp::kBeingWritten);
  StartSum(executor_.options().layouts[add.stage.value], blocks_.Write(sum));
  stamp.Set(StampOfSum(executor_.plan(), t, 0));
  return absl::OkStatus();
}

std::byte* Sums::Open(int64_t op) {
  const int64_t number = AddOf(op);
  if (number == kNoOp) return nullptr;
  const OpState& add = executor_.guarded().program.at(number);
  // A gradient that is to be weighted is handed over.
  if (WeightOfMicroBatch(executor_.options(), add.linked.op) != 1) return nullptr;
  // Nobody touches a sum between its arrival (or the add of the lap before) and this add: nothing
  // but its backward keeps it from starting.
  return add.waiting <= 1 ? blocks_.Write(SumOf(add.linked.op)) : nullptr;
}

void Sums::Keep(int64_t op, StageGradient gradient) {
  // A stage without a sum has no add.
  if (AddOf(op) == kNoOp) return;
  const Op& backward = executor_.OpOf(op);
  gradient_bytes_ += BytesOf(backward.stage, gradient);
  int64_t& most = executor_.guarded().stats.memory.gradients;
  most = std::max(most, gradient_bytes_);
  gradients_[PlaceOf(backward)] = std::move(gradient);
}

void Sums::StartAdd(int64_t number) {
  const EngineOptions& options = executor_.options();
  const Instruction& add = executor_.OpOf(number);
  const Op op = add;
  const MemoryBlock& sum = SumOf(add);
  std::byte* const data = blocks_.Write(sum);
  auto gradient = std::make_shared<StageGradient>(std::move(gradients_[PlaceOf(op)]));
  gradients_.erase(PlaceOf(op));
  const float weight = WeightOfMicroBatch(options, op);
  const Stamp stamp = blocks_.StampAt(sum);
  executor_.RunOnPool(
      number, [this, &options, op, data, gradient, weight, stamp]() -> absl::Status {
        const StageLayout& layout = options.layouts[op.stage.value];
        const int t = op.iteration.value, m = MicroBatchOf(options.plan, options.self, op.lap);
        const Weighing how{weight, {.seed = options.seed, .iteration = t, .micro_batch = m}};
        RZ_RETURN_IF_ERROR(Annotate(stamp.Check(StampOfSum(options.plan, t, m)), "its sum"));
        stamp.Set(Stamp::kBeingWritten);
        for (const GradientPart& part : *gradient) AddWeighted(layout, part, how, data);
        const OverflowPlace place{op.iteration, op.stage, m};
        if (std::ranges::count(options.overflows, place) > 0) Overflow(layout, data);
        stamp.Set(StampOfSum(options.plan, t, m + 1));
        const int64_t bytes = BytesOf(op.stage, *gradient);
        gradient->clear();
        const Executor::Lock lock = executor_.Hold();
        gradient_bytes_ -= bytes;
        return absl::OkStatus();
      });
}

int64_t Sums::BytesOf(StageId stage, const StageGradient& gradient) const {
  int64_t bytes = 0;
  for (const GradientPart& part : gradient) {
    bytes += executor_.options().layouts[stage.value].parameters[part.parameter].numel *
             SizeOf(part.type);
  }
  return bytes;
}

}  // namespace ringzero
