// Where gradients and the sums that begin with them lie: memory, and waits for it.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/engine_impl.h"
#include "zero/gradient_sum.h"

namespace ringzero {

int64_t Engine::Impl::AddOf(int64_t op) const {
  const OpState& backward = state_.at(op);
  for (const int64_t next : backward.next) {
    const LinkedOp& add = state_.at(next).linked;
    if (add.op.kind == OpKind::kAdd && PlaceOf(add.op) == PlaceOf(backward.linked.op)) return next;
  }
  return kNoOp;
}

const MemoryBlock* Engine::Impl::OwnSum(const Instruction& op) const {
  for (const Use& use : op.uses) {
    if (use.role == Role::kSum && blocks_.Has(use.block)) return &use.block;
  }
  return nullptr;
}

const std::byte* Engine::Impl::CompleteSum(const LinkedOp& linked) const {
  if (const MemoryBlock* own = OwnSum(linked.op)) return blocks_.Read(*own);
  const OpState& complete = state_.at(linked.takes >= 0 ? linked.takes : linked.snapshot);
  return complete.shared ? complete.shared.data() : complete.owned.data();
}

absl::Status Engine::Impl::ReserveSums() {
  std::vector<Buffer> sums;
  for (const OwnBlock& own : OwnBlocks(plan_, options_.self, {})) {
    if (own.block.kind != BlockKind::kSum || own.access != Access::kHandedOn) continue;
    RZ_ASSIGN_OR_RETURN(Buffer sum, options_.transport->AllocateNumbered(
                                        own.block.stage.value, static_cast<size_t>(own.bytes)));
    sums.push_back(std::move(sum));
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::WaitForSumMemory(Lock& lock, int64_t op) {
  const int64_t add = AddOf(op);
  if (add == kNoOp || state_.at(add).linked.takes >= 0) return absl::OkStatus();
  const Op add_op = state_.at(add).linked.op;
  const StageId stage = add_op.stage;
  const Place place = PlaceOf(add_op);
  // What makes it free: the update before its own, at the stage's owner, or everywhere.
  const Op update{.kind = OpKind::kUpdate,
                  .stage = stage,
                  .iteration = Iteration(add_op.iteration.value - 1),
                  .peer = LastToUpdate(stage)};
  absl::Status refused;
  bool waits = false;
  const StageLayout& layout = options_.layouts[stage.value];
  const MemoryBlock* const own = OwnSum(state_.at(add).linked.op);
  const auto allocated = [&] {
    if (started_sums_.count(place) > 0) return true;
    if (own != nullptr && OnlyBackwardIsMissing(add)) {
      StartSum(layout, blocks_.Write(*own));
      return true;
    }
    absl::StatusOr<Buffer> memory = absl::ResourceExhaustedError("in use");
    if (own == nullptr) {
      memory =
          options_.transport->AllocateNumbered(stage.value, static_cast<size_t>(layout.sum_bytes));
    }
    if (memory.ok()) {
      StartSum(layout, memory->data());
      started_sums_[place] = *std::move(memory);
    } else if (absl::IsResourceExhausted(memory.status())) {
      waiting_for_ =
          absl::StrCat("its sum's memory after \"Update", stage.value, " t", update.iteration.value,
                       "\", to start \"", ToString(state_.at(op).linked.op), "\"");
      waits_for_update_ = {stage, update.iteration};
      if (!std::exchange(waits, true)) {
        recorder_.Record(Writer::kComputing, {EventKind::kWait, update});
      }
      return false;
    } else {
      refused = memory.status();
    }
    return true;
  };
  // It becomes free in other processes, which nobody tells us of.
  const absl::Status waited = WaitFor(
      lock, "for a gradient sum's memory", allocated,
      [this](double seconds) { stats_.wait_gradient_sums_seconds += seconds; },
      std::chrono::microseconds(200));
  waits_for_update_.reset();
  if (waits) recorder_.Record(Writer::kComputing, {EventKind::kWaited, update});
  return waited.ok() ? refused : waited;
}

std::byte* Engine::Impl::OpenSum(StageId stage) {
  Lock lock(mutex_);
  if (!error_.ok() || !begun_ || compute_.empty()) return nullptr;
  const OpState& backward = state_.at(compute_.front());
  if (backward.linked.op.kind != OpKind::kBackward || backward.linked.op.stage != stage) {
    return nullptr;
  }
  const int64_t number = AddOf(compute_.front());
  if (number == kNoOp) return nullptr;
  // What is to be weighted is handed over.
  if (WeightOfMicroBatch(backward.linked.op) != 1) return nullptr;
  const LinkedOp& add = state_.at(number).linked;
  // Nobody touches a sum between its arrival (or the add of the lap before) and this add.
  if (const MemoryBlock* own = OwnSum(add.op)) {
    return OnlyBackwardIsMissing(number) ? blocks_.Write(*own) : nullptr;
  }
  if (add.takes >= 0) {
    return state_.at(add.takes).done ? state_.at(add.takes).owned.data() : nullptr;
  }
  return started_sums_.at(PlaceOf(add.op)).data();
}

int64_t Engine::Impl::BytesOf(StageId stage, const StageGradient& gradient) const {
  int64_t bytes = 0;
  for (const GradientPart& part : gradient) {
    bytes += options_.layouts[stage.value].parameters[part.parameter].numel * SizeOf(part.type);
  }
  return bytes;
}

}  // namespace ringzero
