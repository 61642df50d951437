// CLOCK_THREAD_CPUTIME_ID.
#include "zero/op_costs.h"

#include <ctime>

namespace ringzero {

int64_t ThreadNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

void OpCosts::Count(const Op& op, int64_t nanoseconds, int count) {
  const bool trains = op.copy != Copy::kEvaluation && op.kind != OpKind::kEvaluate &&
                      op.kind != OpKind::kCollect && op.kind != OpKind::kKeep;
  if (op.iteration < options_.from || !trains) return;
  std::lock_guard<std::mutex> lock(mutex_);
  Sum& sum = sums_[{op.kind, op.stage.value}];
  sum.nanoseconds += nanoseconds;
  sum.count += count;
}

void OpCosts::EndCompute(const Op& op) {
  const int64_t now = ThreadNanoseconds();
  if (computed_until_ >= 0) Count(op, now - computed_until_, 1);
  computed_until_ = now;
}

std::vector<StageTicks> OpCosts::Means() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto mean = [&](OpKind kind, int stage) {
    const auto sum = sums_.find({kind, stage});
    return sum == sums_.end() ? 0 : sum->second.mean();
  };
  std::vector<StageTicks> means;
  for (int j = 0; j < options_.stages; ++j) {
    means.push_back({.forward = mean(OpKind::kForward, j),
                     .backward = mean(OpKind::kBackward, j),
                     .add = mean(OpKind::kAdd, j),
                     .update = mean(OpKind::kUpdate, j)});
  }
  return means;
}

int64_t OpCosts::lap_nanoseconds() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto sum = sums_.find({OpKind::kEnd, kNoStage.value});
  return sum == sums_.end() ? 0 : sum->second.mean();
}

int64_t OpCosts::total_nanoseconds() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t total = 0;
  for (const auto& [what, sum] : sums_) total += sum.nanoseconds;
  return total;
}

}  // namespace ringzero
