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

absl::StatusOr<Buffer> Engine::Impl::AllocateNewSum(StageId stage) {
  const int64_t bytes = options_.layouts[stage.value].sum_bytes;
  if (options_.transport == nullptr) {
    if (!heap_sums_.insert(stage.value).second) return absl::ResourceExhaustedError("held");
    int64_t held = 0;
    for (const int j : heap_sums_) held += options_.layouts[j].sum_bytes;
    stats_.memory.sums = std::max(stats_.memory.sums, held);
    return MakeHeapBuffer(static_cast<size_t>(bytes));
  }
  return options_.transport->AllocateNumbered(stage.value, static_cast<size_t>(bytes));
}

absl::Status Engine::Impl::ReserveSums() {
  const bool begins = options_.self.value == 0;
  if (!begins || !plan_.exchange || options_.transport == nullptr) return absl::OkStatus();
  std::vector<Buffer> sums;
  for (int j = 0; j < plan_.stage_count(); ++j) {
    if (options_.layouts[j].sum_bytes == 0) continue;
    RZ_ASSIGN_OR_RETURN(Buffer sum, AllocateNewSum(StageId(j)));
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
  const auto allocated = [&] {
    if (started_sums_.count(place) > 0) return true;
    absl::StatusOr<Buffer> memory = AllocateNewSum(stage);
    if (memory.ok()) {
      StartSum(options_.layouts[stage.value], memory->data());
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
