// Where gradients and sums lie, waits for their memory, and adds.
#include "zero/engine/sums.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/engine/samples.h"
#include "zero/gradient_sum.h"

namespace ringzero {

absl::Status Sums::Reserve() {
  const EngineOptions& options = executor_.options();
  std::vector<Buffer> sums;
  for (const OwnBlock& own : OwnBlocks(options.plan, options.self, {})) {
    if (own.block.kind != BlockKind::kSum || own.access != Access::kHandedOn) continue;
    RZ_ASSIGN_OR_RETURN(Buffer sum, options.transport->AllocateNumbered(
                                        own.block.stage.value, static_cast<size_t>(own.bytes)));
    sums.push_back(std::move(sum));
  }
  return absl::OkStatus();
}

int64_t Sums::AddOf(int64_t op) const {
  const OpState& backward = executor_.state().at(op);
  for (const int64_t next : backward.next) {
    const LinkedOp& add = executor_.state().at(next).linked;
    if (add.op.kind == OpKind::kAdd && PlaceOf(add.op) == PlaceOf(backward.linked.op)) return next;
  }
  return kNoOp;
}

const MemoryBlock* Sums::Own(const Instruction& op) const {
  for (const Use& use : op.uses) {
    if (use.role == Role::kSum && blocks_.Has(use.block)) return &use.block;
  }
  return nullptr;
}

const std::byte* Sums::Complete(const LinkedOp& linked) const {
  if (const MemoryBlock* own = Own(linked.op)) return blocks_.Read(*own);
  const OpState& complete =
      executor_.state().at(linked.takes >= 0 ? linked.takes : linked.snapshot);
  return complete.shared ? complete.shared.data() : complete.owned.data();
}

int64_t Sums::FreeFor(int t) const { return int64_t{t} * (PerIteration() + 2); }

absl::Status Sums::CheckComplete(const Instruction& reader) const {
  const MemoryBlock* const own = Own(reader);
  if (own == nullptr) return absl::OkStatus();
  // A collection is named after the version that the update makes.
  const int t = reader.iteration.value - (reader.kind == OpKind::kKeep ? 1 : 0);
  return Annotate(blocks_.StampAt(*own).Check(Begun(t, PerIteration())), ToString(*own));
}

void Sums::Free(const Instruction& last) {
  const MemoryBlock* const own = Own(last);
  if (own != nullptr) blocks_.StampAt(*own).Set(FreeFor(last.iteration.value + 1));
}

WorkerId Sums::LastToUpdate(StageId stage) const {
  const Plan& plan = executor_.plan();
  if (!plan.spreads_sums()) return plan.owner(stage);
  return WorkerId(plan.workers > 2 ? plan.workers - 2 : plan.workers - 1);
}

absl::Status Sums::WaitForMemory(Executor::Lock& lock, int64_t op) {
  const int64_t add = AddOf(op);
  if (add == kNoOp || executor_.state().at(add).linked.takes >= 0) return absl::OkStatus();
  const Op add_op = executor_.OpOf(add);
  const StageId stage = add_op.stage;
  const Place place = PlaceOf(add_op);
  // What makes it free: the update before its own, at the stage's owner, or everywhere.
  const Op update{.kind = OpKind::kUpdate,
                  .stage = stage,
                  .iteration = Iteration(add_op.iteration.value - 1),
                  .peer = LastToUpdate(stage)};
  absl::Status refused;
  bool waits = false;
  const MemoryBlock* const own = Own(executor_.OpOf(add));
  const auto allocated = [&] {
    if (started_.count(place) > 0) return true;
    if (own != nullptr && OnlyBackwardIsMissing(add)) {
      const int t = add_op.iteration.value;
      const Stamp stamp = blocks_.StampAt(*own);
      refused = Annotate(stamp.Check(FreeFor(t)), ToString(*own));
      if (!refused.ok()) return true;
      stamp.Set(Stamp::kBeingWritten);
      StartSum(executor_.LayoutOf(stage), blocks_.Write(*own));
      stamp.Set(Begun(t, 0));
      return true;
    }
    absl::StatusOr<Buffer> memory = absl::ResourceExhaustedError("in use");
    if (own == nullptr) {
      memory = executor_.transport()->AllocateNumbered(
          stage.value, static_cast<size_t>(executor_.LayoutOf(stage).sum_bytes));
    }
    if (memory.ok()) {
      StartSum(executor_.LayoutOf(stage), memory->data());
      started_[place] = *std::move(memory);
      return true;
    }
    if (!absl::IsResourceExhausted(memory.status())) {
      refused = memory.status();
      return true;
    }
    ComputingSide& computing = executor_.computing();
    const Op& backward = executor_.OpOf(op);
    computing.waiting_for =
        absl::StrCat("its sum's memory after \"Update", stage.value, " t", update.iteration.value,
                     "\", to start \"", ToString(backward), "\"");
    computing.update = {stage, update.iteration};
    if (!std::exchange(waits, true)) {
      executor_.recorder().Record(Executor::Writer::kComputing, {EventKind::kWait, update});
    }
    return false;
  };
  // Memory that was handed on becomes free in other processes, which nobody tells us of.
  const std::chrono::microseconds look =
      own != nullptr ? std::chrono::microseconds(kAwakeLook) : std::chrono::microseconds(200);
  const absl::Status waited = executor_.WaitFor(
      lock, "for a gradient sum's memory", allocated,
      [this](double seconds) { executor_.stats().wait_gradient_sums_seconds += seconds; }, look);
  executor_.computing().update.reset();
  if (waits)
    executor_.recorder().Record(Executor::Writer::kComputing, {EventKind::kWaited, update});
  if (!refused.ok()) executor_.FailAt(add_op, refused);
  return refused.ok() ? waited : executor_.error();
}

std::byte* Sums::Open(int64_t op) {
  const int64_t number = AddOf(op);
  if (number == kNoOp) return nullptr;
  const LinkedOp& add = executor_.state().at(number).linked;
  // A gradient that is to be weighted is handed over.
  if (WeightOfMicroBatch(executor_.options(), add.op) != 1) return nullptr;
  // Nobody touches a sum between its arrival (or the add of the lap before) and this add.
  if (const MemoryBlock* own = Own(add.op)) {
    return OnlyBackwardIsMissing(number) ? blocks_.Write(*own) : nullptr;
  }
  if (add.takes < 0) return started_.at(PlaceOf(add.op)).data();
  const OpState& before = executor_.state().at(add.takes);
  return before.done ? before.owned.data() : nullptr;
}

void Sums::Keep(int64_t op, StageGradient gradient) {
  // A stage without a sum has no add.
  if (AddOf(op) == kNoOp) return;
  const Op& backward = executor_.OpOf(op);
  gradient_bytes_ += BytesOf(backward.stage, gradient);
  int64_t& most = executor_.stats().memory.gradients;
  most = std::max(most, gradient_bytes_);
  gradients_[PlaceOf(backward)] = std::move(gradient);
}

void Sums::StartAdd(int64_t number) {
  const EngineOptions& options = executor_.options();
  const LinkedOp& linked = executor_.state().at(number).linked;
  const Op op = linked.op;
  const MemoryBlock* const own = Own(linked.op);
  auto sum = std::make_shared<Buffer>();
  if (own == nullptr) {
    *sum = executor_.TakeOver(number);
    if (auto started = started_.extract(PlaceOf(op))) *sum = std::move(started.mapped());
  }
  std::byte* const data = own != nullptr ? blocks_.Write(*own) : sum->data();
  auto gradient = std::make_shared<StageGradient>(std::move(gradients_[PlaceOf(op)]));
  gradients_.erase(PlaceOf(op));
  const float weight = WeightOfMicroBatch(options, op);
  const Stamp stamp = own != nullptr ? blocks_.StampAt(*own) : Stamp();
  executor_.RunOnPool(
      number, [this, &options, number, op, sum, data, gradient, weight, stamp]() -> absl::Status {
        const StageLayout& layout = executor_.LayoutOf(op.stage);
        const SumRounding rounding{.seed = options.seed,
                                   .iteration = op.iteration.value,
                                   .micro_batch = NumberInIteration(options, op)};
        const int t = op.iteration.value, m = rounding.micro_batch;
        RZ_RETURN_IF_ERROR(Annotate(stamp.Check(Begun(t, m)), "its sum"));
        stamp.Set(Stamp::kBeingWritten);
        for (const GradientPart& part : *gradient)
          AddWeighted(layout, part, {weight, rounding}, data);
        const OverflowPlace place{op.iteration, op.stage, rounding.micro_batch};
        const auto& overflows = options.overflows;
        if (std::find(overflows.begin(), overflows.end(), place) != overflows.end()) {
          Overflow(layout, data);
        }
        stamp.Set(Begun(t, m + 1));
        const int64_t bytes = BytesOf(op.stage, *gradient);
        gradient->clear();
        const Executor::Lock lock = executor_.Hold();
        gradient_bytes_ -= bytes;
        if (!executor_.error().ok() || !*sum) return absl::OkStatus();
        OpState& state = executor_.state().at(number);
        // Complete, for all who update from it.
        if (options.plan.spreads_sums() && state.users_left > 0) {
          state.shared = std::move(*sum).Seal();
        } else {
          state.owned = std::move(*sum);
        }
        return absl::OkStatus();
      });
}

int64_t Sums::BytesOf(StageId stage, const StageGradient& gradient) const {
  int64_t bytes = 0;
  for (const GradientPart& part : gradient) {
    bytes += executor_.LayoutOf(stage).parameters[part.parameter].numel * SizeOf(part.type);
  }
  return bytes;
}

void Sums::Clear() {
  gradients_.clear();
  started_.clear();
}

}  // namespace ringzero
