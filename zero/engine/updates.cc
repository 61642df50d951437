// Updates and copies of sums and states.
#include "zero/engine/updates.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/status.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer_state.h"
#include "zero/slowed_update.h"

namespace ringzero {

using Writer = Executor::Writer;

SharedBuffer Updates::TakeSum(int64_t number) {
  const LinkedOp& linked = parts_.executor.state().at(number).linked;
  if (const MemoryBlock* own = parts_.sums.Own(linked.op)) return parts_.blocks.Lend(*own);
  if (parts_.executor.plan().spreads_sums()) return parts_.executor.state().at(linked.takes).shared;
  return parts_.executor.TakeOver(number).Seal();
}

void Updates::Start(int64_t number) {
  const EngineOptions& options = parts_.executor.options();
  const Instruction op = parts_.executor.OpOf(number);
  auto sum = std::make_shared<SharedBuffer>(TakeSum(number));
  auto update = std::make_shared<std::unique_ptr<PendingUpdate>>();
  const Deadline patience(options.wait_timeout);
  const auto slowed = std::make_shared<SlowedUpdate>(options.update_slowness);
  parts_.executor.pool().Update([this, &options, number, op, sum, update, slowed, patience] {
    Executor& executor = parts_.executor;
    if (*update == nullptr) {
      Executor::Lock lock = executor.Hold();
      if (!executor.error().ok()) return false;
      if (!parts_.owned.MayUpdate(op)) {
        if (patience.over()) {
          executor.FailAt(op, absl::InternalError("others hold what it overwrites"));
          return false;
        }
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        return true;
      }
      if (absl::Status whole = parts_.sums.CheckComplete(op); !whole.ok()) {
        executor.FailAt(op, whole);
        return false;
      }
      *update = parts_.owned.BeginUpdate(op, parts_.norms.TermsOf(op), std::move(*sum));
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
    // The sum's memory is free before anybody hears that this is done.
    update->reset();
    executor.Complete(number);
    return false;
  });
}

void Updates::StartKeep(int64_t number) {
  const LinkedOp& linked = parts_.executor.state().at(number).linked;
  const Instruction op = linked.op;
  const bool gradient = op.copy == Copy::kGradient;
  // The update that takes the sum, or changes the state, waits for this (sharding/link.h): both are
  // read without the lock.
  const std::byte* sum = gradient ? parts_.sums.Complete(linked) : nullptr;
  const StageOptimizer* optimizer = gradient ? nullptr : &parts_.owned.optimizer(op.stage);
  const double divisor = parts_.norms.SumDivisor(Iteration(op.iteration.value - 1));
  parts_.executor.RunOnPool(number, [this, number, op, sum, optimizer, divisor]() -> absl::Status {
    Executor& executor = parts_.executor;
    const StageLayout& layout = executor.LayoutOf(op.stage);
    const size_t bytes =
        executor.MessageBytes({.channel = Channel::kStates, .copy = op.copy, .stage = op.stage});
    RZ_ASSIGN_OR_RETURN(Buffer kept, executor.AllocateMessage(static_cast<int64_t>(bytes)));
    if (optimizer == nullptr) {
      AverageSum(layout, sum, float(divisor), kept.data());
      const Executor::Lock lock = executor.Hold();
      RZ_RETURN_IF_ERROR(parts_.sums.CheckComplete(op));
    } else {
      CopyState(StateLayout::Make(executor.options().optimizer, layout), *optimizer, kept.data());
    }
    return executor.Leave(number, std::move(kept));
  });
}

}  // namespace ringzero
