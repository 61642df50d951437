// Applies, snaps, folds and reports, on the pool.
#include "zero/engine/statistics.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "base/status.h"
#include "zero/running_statistics.h"

namespace ringzero {

absl::Status Statistics::Initialize() {
  const EngineOptions& options = executor_.options();
  for (int j = 0; j < options.plan.stage_count(); ++j) {
    const int64_t bytes = options.layouts[j].statistics_bytes;
    if (options.self.value > 0 || bytes == 0) continue;
    Buffer initial = MakeHeapBuffer(static_cast<size_t>(bytes));
    if (options.initialize_statistics) {
      RZ_RETURN_IF_ERROR(options.initialize_statistics(StageId(j), initial.data()));
    }
    initial_[j] = std::move(initial).Seal();
  }
  return absl::OkStatus();
}

void Statistics::StartApply(int64_t number) {
  const Op op = executor_.OpOf(number);
  auto running = std::make_shared<Buffer>(executor_.TakeOver(number));
  auto batch = std::make_shared<Buffer>(std::move(batches_[PlaceOf(op)]));
  batches_.erase(PlaceOf(op));
  const SharedBuffer initial = *running ? SharedBuffer() : initial_.at(op.stage.value);
  executor_.RunOnPool(number, [this, number, op, running, batch, initial]() -> absl::Status {
    const StageLayout& layout = executor_.LayoutOf(op.stage);
    if (!*running) {
      RZ_ASSIGN_OR_RETURN(*running, executor_.AllocateMessage(layout.statistics_bytes));
      std::memcpy(running->data(), initial.data(), initial.size());
    }
    // A missing micro-batch has none.
    if (*batch) ApplyStatistics(layout, batch->data(), running->data());
    return executor_.Leave(number, std::move(*running));
  });
}

void Statistics::StartSnapshot(int64_t number) {
  const LinkedOp& linked = executor_.state().at(number).linked;
  const Op op = linked.op;
  // The running statistics stay where they are until this is done (sharding/link.h), so that they
  // can be read without the lock; the last ones of the run end here.
  const std::byte* data = executor_.state().at(linked.snapshot).owned.data();
  auto last = std::make_shared<Buffer>(executor_.TakeOver(number));
  executor_.RunOnPool(number, [this, number, op, data, last]() -> absl::Status {
    const int64_t bytes = executor_.LayoutOf(op.stage).statistics_bytes;
    RZ_ASSIGN_OR_RETURN(Buffer copy, executor_.AllocateMessage(bytes));
    std::memcpy(copy.data(), data, static_cast<size_t>(bytes));
    last->Reset();
    const Executor::Lock lock = executor_.Hold();
    if (!executor_.error().ok()) return absl::OkStatus();
    SharedBuffer snapshot = std::move(copy).Seal();
    OpState& state = executor_.state().at(number);
    if (state.users_left > 0) state.shared = snapshot;
    snapshots_[{op.iteration.value, op.stage.value}] = std::move(snapshot);
    return absl::OkStatus();
  });
}

absl::Status Statistics::KeepRunning(OpState& received) {
  // So that the slot is free: the next worker's evaluation, which waits for later statistics on this
  // channel, may come before its use of these.
  RZ_ASSIGN_OR_RETURN(Buffer copy,
                      executor_.AllocateMessage(static_cast<int64_t>(received.owned.size())));
  std::memcpy(copy.data(), received.owned.data(), copy.size());
  received.owned = std::move(copy);
  return absl::OkStatus();
}

void Statistics::KeepSnapshot(OpState& received) {
  // Likewise; the received handle itself serves the relay.
  Buffer copy = MakeHeapBuffer(received.shared.size());
  std::memcpy(copy.data(), received.shared.data(), copy.size());
  if (received.users_left == 0) received.shared.Reset();
  const Op& op = received.linked.op;
  snapshots_[{op.iteration.value, op.stage.value}] = std::move(copy).Seal();
}

SharedBuffer Statistics::SnapshotOf(Iteration t, StageId stage) const {
  const auto snapshot = snapshots_.find({t.value, stage.value});
  return snapshot == snapshots_.end() ? SharedBuffer() : snapshot->second;
}

void Statistics::ForgetBefore(Iteration t) {
  snapshots_.erase(snapshots_.begin(), snapshots_.lower_bound({t.value, 0}));
}

void Statistics::StartFold(int64_t number) {
  const Op op = executor_.OpOf(number);
  auto folded = std::make_shared<Buffer>(executor_.TakeOver(number));
  std::vector<double> metrics = std::move(metrics_[PlaceInFold(op)]);
  metrics_.erase(PlaceInFold(op));
  executor_.RunOnPool(
      number, [this, number, folded, metrics = std::move(metrics)]() -> absl::Status {
        if (!*folded) {
          const size_t bytes = std::max<size_t>(1, metrics.size()) * sizeof(double);
          RZ_ASSIGN_OR_RETURN(*folded, executor_.AllocateMessage(static_cast<int64_t>(bytes)));
          std::memset(folded->data(), 0, folded->size());
        }
        const std::span<double> sums = folded->as<double>();
        for (size_t i = 0; i < metrics.size(); ++i) sums[i] += metrics[i];
        return executor_.Leave(number, std::move(*folded));
      });
}

void Statistics::StartReport(int64_t number) {
  const Op op = executor_.OpOf(number);
  auto folded = std::make_shared<Buffer>(executor_.TakeOver(number));
  executor_.RunOnPool(number, [this, op, folded]() -> absl::Status {
    const EngineOptions& options = executor_.options();
    const std::span<const double> sums = folded->as<double>();
    const std::vector<double> metrics(sums.begin(), sums.begin() + options.metrics_count);
    folded->Reset();
    const bool evaluation = op.copy == Copy::kEvaluation;
    if (options.on_report) {
      options.on_report(op.iteration, evaluation ? LapTask::Kind::kEvaluate : LapTask::Kind::kTrain,
                        metrics);
    }
    return absl::OkStatus();
  });
}

void Statistics::Clear() {
  batches_.clear();
  initial_.clear();
  snapshots_.clear();
  metrics_.clear();
}

}  // namespace ringzero
