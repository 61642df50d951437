// What the pool does: adds, updates, statistics, folds.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <thread>
#include <utility>

#include "base/status.h"
#include "p2p/launch/limits.h"
#include "zero/engine_impl.h"
#include "zero/engine_samples.h"
#include "zero/gradient_sum.h"
#include "zero/running_statistics.h"
#include "zero/slowed_update.h"

namespace ringzero {

void Engine::Impl::RunOnPool(int64_t op, std::function<absl::Status()> work) {
  pool_->Add([this, op, what = state_.at(op).linked.op, work = std::move(work)] {
    recorder_.Record(Writer::kPool, {EventKind::kBegin, what});
    const absl::Status status = Costed(what, 1, [&]() -> absl::Status {
      try {
        return work();
      } catch (const std::bad_alloc& error) {
        return OutOfMemory(error.what());
      }
    });
    recorder_.Record(Writer::kPool, {EventKind::kEnd, what});
    Lock lock(mutex_);
    if (!error_.ok()) return;
    if (!status.ok()) return FailAt(state_.at(op).linked.op, status);
    Complete(op);
  });
}

absl::StatusOr<Buffer> Engine::Impl::AllocateSum(int64_t bytes) {
  if (options_.transport == nullptr) return MakeHeapBuffer(static_cast<size_t>(bytes));
  return options_.transport->Allocate(static_cast<size_t>(bytes), MemoryUse::kSums);
}

void Engine::Impl::SubmitAdd(int64_t number) {
  const Op op = state_.at(number).linked.op;
  const MemoryBlock* const own = OwnSum(state_.at(number).linked.op);
  auto sum = std::make_shared<Buffer>();
  if (own == nullptr) {
    *sum = TakeOver(number);
    if (auto started = started_sums_.extract(PlaceOf(op))) *sum = std::move(started.mapped());
  }
  std::byte* const data = own != nullptr ? blocks_.Write(*own) : sum->data();
  auto gradient = std::make_shared<StageGradient>(std::move(gradients_[PlaceOf(op)]));
  gradients_.erase(PlaceOf(op));
  const float weight = WeightOfMicroBatch(op);
  RunOnPool(number, [this, number, op, sum, data, gradient, weight]() -> absl::Status {
    const StageLayout& layout = options_.layouts[op.stage.value];
    const SumRounding rounding{
        .seed = options_.seed, .iteration = op.iteration.value, .micro_batch = NumberOf(op)};
    for (const GradientPart& part : *gradient) {
      AddWeighted(layout, part, {weight, rounding}, data);
    }
    const OverflowPlace place{op.iteration, op.stage, rounding.micro_batch};
    const auto& overflows = options_.overflows;
    if (std::find(overflows.begin(), overflows.end(), place) != overflows.end()) {
      Overflow(layout, data);
    }
    const int64_t bytes = BytesOf(op.stage, *gradient);
    gradient->clear();
    Lock lock(mutex_);
    gradient_bytes_ -= bytes;
    if (!error_.ok() || !*sum) return absl::OkStatus();
    OpState& state = state_.at(number);
    // Complete, for all who update from it.
    const bool spreads = plan_.spreads_sums() && state.users_left > 0;
    if (spreads) {
      state.shared = std::move(*sum).Seal();
    } else {
      state.owned = std::move(*sum);
    }
    return absl::OkStatus();
  });
}

void Engine::Impl::SubmitUpdate(int64_t number) {
  const LinkedOp& linked = state_.at(number).linked;
  const Instruction op = linked.op;
  auto sum = std::make_shared<SharedBuffer>();
  if (const MemoryBlock* own = OwnSum(op)) {
    *sum = blocks_.Lend(*own);
  } else if (plan_.spreads_sums()) {
    *sum = state_.at(linked.takes).shared;
  } else {
    *sum = TakeOver(number).Seal();
  }
  auto update = std::make_shared<std::unique_ptr<PendingUpdate>>();
  const Deadline patience(options_.wait_timeout);
  const auto slowed = std::make_shared<SlowedUpdate>(options_.update_slowness);
  pool_->Update([this, number, op, sum, update, slowed, patience] {
    if (*update == nullptr) {
      Lock lock(mutex_);
      if (!error_.ok()) return false;
      if (!owned_.MayUpdate(op)) {
        lock.unlock();
        if (patience.over()) {
          Abort(Internal(Where(op), ": others hold what it overwrites"));
          return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        return true;
      }
      *update = owned_.BeginUpdate(op, TermsOf(op), std::move(*sum));
      if (options_.gradient_norms && !plan_.counts_squares()) (*update)->CountSquares();
      recorder_.Record(Writer::kPool, {EventKind::kBegin, op});
    }
    const auto step = [&] { return Costed(op, 0, [&] { return (*update)->Step(); }); };
    if (slowed->Step(step)) return true;
    if (options_.costs != nullptr) options_.costs->Count(op, 0, 1);
    recorder_.Record(Writer::kPool, {EventKind::kEnd, op});
    Lock lock(mutex_);
    if (!error_.ok()) return false;
    owned_.EndUpdate(**update);
    // The sum's memory is free before anybody hears that this is done.
    update->reset();
    Complete(number);
    return false;
  });
}

void Engine::Impl::SubmitApply(int64_t number) {
  const Op op = state_.at(number).linked.op;
  auto running = std::make_shared<Buffer>(TakeOver(number));
  auto batch = std::make_shared<Buffer>(std::move(statistics_[PlaceOf(op)]));
  statistics_.erase(PlaceOf(op));
  const SharedBuffer initial = *running ? SharedBuffer() : initial_statistics_.at(op.stage.value);
  RunOnPool(number, [this, number, op, running, batch, initial]() -> absl::Status {
    const StageLayout& layout = options_.layouts[op.stage.value];
    if (!*running) {
      RZ_ASSIGN_OR_RETURN(*running, AllocateSum(layout.statistics_bytes));
      std::memcpy(running->data(), initial.data(), initial.size());
    }
    // A missing micro-batch has none.
    if (*batch) ApplyStatistics(layout, batch->data(), running->data());
    Lock lock(mutex_);
    if (error_.ok()) state_.at(number).owned = std::move(*running);
    return absl::OkStatus();
  });
}

void Engine::Impl::SubmitSnapshot(int64_t number) {
  const LinkedOp& linked = state_.at(number).linked;
  const Op op = linked.op;
  // The running statistics stay where they are until this is done (sharding/link.h), so that they
  // can be read without the lock; the last ones of the run end here.
  const std::byte* data = state_.at(linked.snapshot).owned.data();
  auto last = std::make_shared<Buffer>(TakeOver(number));
  RunOnPool(number, [this, number, op, data, last]() -> absl::Status {
    const size_t bytes = MessageBytes({.channel = Channel::kSnapshots, .stage = op.stage});
    RZ_ASSIGN_OR_RETURN(Buffer copy, AllocateSum(static_cast<int64_t>(bytes)));
    std::memcpy(copy.data(), data, bytes);
    last->Reset();
    Lock lock(mutex_);
    if (!error_.ok()) return absl::OkStatus();
    SharedBuffer snapshot = std::move(copy).Seal();
    if (state_.at(number).users_left > 0) state_.at(number).shared = snapshot;
    snapshots_[{op.iteration.value, op.stage.value}] = std::move(snapshot);
    return absl::OkStatus();
  });
}

void Engine::Impl::SubmitFold(int64_t number) {
  const Op op = state_.at(number).linked.op;
  auto folded = std::make_shared<Buffer>(TakeOver(number));
  const std::tuple<bool, int, int> place{op.copy == Copy::kEvaluation, op.iteration.value,
                                         op.lap.value};
  std::vector<double> metrics = std::move(metrics_[place]);
  metrics_.erase(place);
  RunOnPool(number, [this, number, folded, metrics = std::move(metrics)]() -> absl::Status {
    if (!*folded) {
      RZ_ASSIGN_OR_RETURN(*folded,
                          AllocateSum(std::max<size_t>(1, metrics.size()) * sizeof(double)));
      std::memset(folded->data(), 0, folded->size());
    }
    const std::span<double> sums = folded->as<double>();
    for (size_t i = 0; i < metrics.size(); ++i) sums[i] += metrics[i];
    Lock lock(mutex_);
    if (error_.ok()) state_.at(number).owned = std::move(*folded);
    return absl::OkStatus();
  });
}

void Engine::Impl::SubmitReport(int64_t number) {
  const Op op = state_.at(number).linked.op;
  auto folded = std::make_shared<Buffer>(TakeOver(number));
  RunOnPool(number, [this, op, folded]() -> absl::Status {
    const std::span<const double> sums = folded->as<double>();
    const std::vector<double> metrics(sums.begin(), sums.begin() + options_.metrics_count);
    folded->Reset();
    if (options_.on_report) {
      options_.on_report(
          op.iteration,
          op.copy == Copy::kEvaluation ? LapTask::Kind::kEvaluate : LapTask::Kind::kTrain, metrics);
    }
    return absl::OkStatus();
  });
}

}  // namespace ringzero
