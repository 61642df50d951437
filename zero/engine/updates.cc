// Updates and copies of sums and states.
#include "zero/engine/updates.h"

#include <memory>
#include <utility>

#include "base/status.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer_state.h"
#include "zero/slowed_update.h"

namespace ringzero {

using Writer = Executor::Writer;

void Updates::Start(int64_t number) {
  const EngineOptions& options = parts_.executor.options();
  const Instruction op = parts_.executor.OpOf(number);
  const std::byte* const sum = parts_.sums.Read(op);
  auto update = std::make_shared<std::unique_ptr<PendingUpdate>>();
  const auto slowed = std::make_shared<SlowedUpdate>(options.update_slowness);
  parts_.executor.pool().Update([this, &options, number, op, sum, update, slowed] {
    Executor& executor = parts_.executor;
    if (*update == nullptr) {
      const Executor::Lock lock = executor.Hold();
      if (!executor.error().ok()) return false;
      if (absl::Status whole = parts_.sums.CheckComplete(op); !whole.ok()) {
        executor.FailAt(op, whole);
        return false;
      }
      *update = parts_.owned.BeginUpdate(op, parts_.norms.TermsOf(op), sum);
      if (options.gradient_norms && !options.plan.counts_squares()) (*update)->CountSquares();
      executor.recorder().Record(Writer::kPool, {EventKind::kBegin, op});
    }
    const auto step = [&] { return executor.Costed(op, 0, [&] { return (*update)->Step(); }); };
    if (slowed->Step(step)) return true;
    if (options.costs != nullptr) options.costs->Count(op, 0, 1);
    executor.recorder().Record(Writer::kPool, {EventKind::kEnd, op});
    const Executor::Lock lock = executor.Hold();
    if (!executor.error().ok()) return false;
    if (absl::Status whole = parts_.sums.CheckComplete(op); !whole.ok()) {
      executor.FailAt(op, whole);
      return false;
    }
    parts_.sums.Free(op);
    parts_.owned.EndUpdate(**update, op);
    update->reset();
    executor.Complete(number);
    return false;
  });
}

void Updates::StartKeep(int64_t number) {
  const Instruction op = parts_.executor.OpOf(number);
  const bool gradient = op.copy == Copy::kGradient;
  // The update that takes the sum, or changes the state, waits for this (sharding/link.h): both are
  // read without the lock.
  const std::byte* sum = gradient ? parts_.sums.Read(op) : nullptr;
  const StageOptimizer* optimizer = gradient ? nullptr : &parts_.owned.optimizer(op.stage);
  const double divisor = parts_.norms.SumDivisor(Iteration(op.iteration.value - 1));
  std::byte* const kept = parts_.blocks.Write(op.uses[1].block);
  parts_.executor.RunOnPool(number, [this, op, sum, optimizer, divisor, kept]() -> absl::Status {
    Executor& executor = parts_.executor;
    const StageLayout& layout = executor.LayoutOf(op.stage);
    if (optimizer == nullptr) {
      AverageSum(layout, sum, float(divisor), kept);
      const Executor::Lock lock = executor.Hold();
      RZ_RETURN_IF_ERROR(parts_.sums.CheckComplete(op));
    } else {
      CopyState(StateLayout::Make(executor.options().optimizer, layout), *optimizer, kept);
    }
    return absl::OkStatus();
  });
}

}  // namespace ringzero
