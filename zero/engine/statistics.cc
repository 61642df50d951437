// Applies, snaps, folds and reports, on the pool.
#include "zero/engine/statistics.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/status.h"

namespace ringzero {

void ApplyStatistics(const StageLayout& layout, const std::byte* batch, std::byte* running) {
  for (const StatisticSpec& spec : layout.statistics) {
    if (spec.kind == StatisticSpec::Kind::kCount) {
      ++*reinterpret_cast<int64_t*>(running + spec.offset_bytes);
      continue;
    }
    const float* from = reinterpret_cast<const float*>(batch + spec.offset_bytes);
    float* to = reinterpret_cast<float*>(running + spec.offset_bytes);
    for (int64_t i = 0; i < spec.numel; ++i) {
      to[i] = static_cast<float>((1 - spec.blend) * double(to[i]) + spec.blend * double(from[i]));
    }
  }
}

namespace {

// An End or a Fold.
bool BringsRequests(const Op& op) { return op.copy == Copy::kNone && op.lap.value == 0; }

}  // namespace

absl::Status Statistics::Initialize() {
  const EngineOptions& options = executor_.options();
  if (options.self.value > 0 || !options.initialize_statistics) return absl::OkStatus();
  for (int j = 0; j < options.plan.stage_count(); ++j) {
    const MemoryBlock running{.kind = BlockKind::kStatistics, .stage = StageId(j)};
    if (!blocks_.Has(running)) continue;
    RZ_RETURN_IF_ERROR(options.initialize_statistics(StageId(j), blocks_.Write(running)));
  }
  return absl::OkStatus();
}

void Statistics::StartApply(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  std::byte* const running = blocks_.Write(op.uses[1].block);
  auto batch = std::make_shared<Buffer>(std::move(batches_[PlaceOf(op)]));
  batches_.erase(PlaceOf(op));
  executor_.RunOnPool(number, [this, op, running, batch]() -> absl::Status {
    // A missing micro-batch has none.
    if (*batch)
      ApplyStatistics(executor_.options().layouts[op.stage.value], batch->data(), running);
    return absl::OkStatus();
  });
}

void Statistics::StartSnapshot(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const std::byte* const running = blocks_.Read(op.uses[0].block);
  std::byte* const snapshot = blocks_.Write(op.uses[1].block);
  const auto bytes =
      static_cast<size_t>(executor_.options().layouts[op.stage.value].statistics_bytes);
  executor_.RunOnPool(number, [running, snapshot, bytes]() -> absl::Status {
    std::memcpy(snapshot, running, bytes);
    return absl::OkStatus();
  });
}

SharedBuffer Statistics::SnapshotOf(const Instruction& op) const {
  for (const Use& use : op.uses) {
    if (use.role == Role::kSnapshot) return blocks_.Lend(use.block);
  }
  return SharedBuffer();
}

void Statistics::Ask(Iteration t, const RunRequest& request) {
  RunRequest& asked = requests_[t];
  asked.version = request.version;
  asked.ends |= request.ends;
  asked.evaluates |= request.evaluates;
  asked.collects |= request.collects;
  asked.saves |= request.saves;
}

Plan Statistics::AskedPlan() const {
  Plan plan = executor_.plan_so_far();
  for (const auto& [t, request] : requests_) NoteRequest(request, plan);
  return plan;
}

void Statistics::KeepMetrics(const Op& end, std::vector<double> metrics) {
  const EngineOptions& options = executor_.options();
  if (options.plan.requests) {
    const auto count = static_cast<size_t>(options.metrics_count);
    metrics.resize(count + kRequestNumbers);
    const auto asked = requests_.find(end.iteration);
    if (asked != requests_.end() && BringsRequests(end)) {
      WriteRequest(asked->second, std::span(metrics).subspan(count));
    }
  }
  metrics_[PlaceInFold(end)] = std::move(metrics);
}

void Statistics::StartFold(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const Use& fold = op.uses[1];
  double* const sums = reinterpret_cast<double*>(blocks_.Write(fold.block));
  const bool begins = fold.how == How::kWrite;
  std::vector<double> metrics = std::move(metrics_[PlaceInFold(op)]);
  metrics_.erase(PlaceInFold(op));
  executor_.RunOnPool(number, [this, op, sums, begins, metrics = std::move(metrics)] {
    for (size_t i = 0; i < metrics.size(); ++i) sums[i] = (begins ? 0 : sums[i]) + metrics[i];
    if (executor_.plan().requests && BringsRequests(op)) {
      const std::span<const double> numbers(sums + executor_.options().metrics_count,
                                            kRequestNumbers);
      const Executor::Lock lock = executor_.Hold();
      executor_.Learn(op.iteration, ReadRequest(numbers));
      requests_.erase(op.iteration);  // noted in the plan
    }
    return absl::OkStatus();
  });
}

void Statistics::StartReport(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const auto* const sums = reinterpret_cast<const double*>(blocks_.Read(op.uses[0].block));
  executor_.RunOnPool(number, [this, op, sums]() -> absl::Status {
    const EngineOptions& options = executor_.options();
    const std::vector<double> metrics(sums, sums + options.metrics_count);
    const bool evaluation = op.copy == Copy::kEvaluation;
    if (options.on_report) {
      options.on_report(op.iteration, evaluation ? LapTask::Kind::kEvaluate : LapTask::Kind::kTrain,
                        metrics);
    }
    return absl::OkStatus();
  });
}

}  // namespace ringzero
