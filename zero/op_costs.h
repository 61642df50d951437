// OpCosts: the processor time of a worker's operations, by stage.
//
//   OpCosts costs(S, Iteration(3));
//   engine_options.costs = &costs;                        // … train …
//   costs.Means();                                        // of training, iteration 3 and later
//
// Processor time, not the clock's: what another thread takes meanwhile does not count. Thread-safe.
#ifndef RINGZERO_ZERO_OP_COSTS_H_
#define RINGZERO_ZERO_OP_COSTS_H_

#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sharding/op.h"
#include "sharding/study/simulate.h"

namespace ringzero {

// Of the calling thread.
inline int64_t ThreadNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

class OpCosts {
 public:
  // `from`: the first iteration that counts.
  OpCosts(int stages, Iteration from) : stages_(stages), from_(from) {}

  // An operation has taken so much; a part of it with `count` 0.
  void Count(const Op& op, int64_t nanoseconds, int count) {
    const bool trains = op.copy != Copy::kEvaluation && op.kind != OpKind::kEvaluate &&
                        op.kind != OpKind::kCollect && op.kind != OpKind::kKeep;
    if (op.iteration < from_ || !trains) return;
    std::lock_guard<std::mutex> lock(mutex_);
    Sum& sum = sums_[{op.kind, op.stage.value}];
    sum.nanoseconds += nanoseconds;
    sum.count += count;
  }
  // The computing thread has ended `op`: it takes what this thread has run for since the last call.
  void EndCompute(const Op& op) {
    const int64_t now = ThreadNanoseconds();
    if (computed_until_ >= 0) Count(op, now - computed_until_, 1);
    computed_until_ = now;
  }

  // By stage, what a forward, backward, add and update took on average; 0 for what was not done.
  std::vector<StageTicks> Means() const {
    std::vector<StageTicks> means;
    for (int j = 0; j < stages_; ++j) {
      means.push_back({.forward = Mean(OpKind::kForward, j),
                       .backward = Mean(OpKind::kBackward, j),
                       .add = Mean(OpKind::kAdd, j),
                       .update = Mean(OpKind::kUpdate, j)});
    }
    return means;
  }
  // Beside the stages, the mean of all micro-batches.
  int64_t lap_nanoseconds() const { return Mean(OpKind::kEnd, kNoStage.value); }
  // All that was counted.
  int64_t total_nanoseconds() const {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t total = 0;
    for (const auto& [what, sum] : sums_) total += sum.nanoseconds;
    return total;
  }

 private:
  struct Sum {
    int64_t nanoseconds = 0;
    int64_t count = 0;
  };
  int64_t Mean(OpKind kind, int stage) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto sum = sums_.find({kind, stage});
    if (sum == sums_.end() || sum->second.count == 0) return 0;
    return sum->second.nanoseconds / sum->second.count;
  }

  const int stages_;
  const Iteration from_;
  int64_t computed_until_ = -1;  // the computing thread's alone
  mutable std::mutex mutex_;
  std::map<std::pair<OpKind, int>, Sum> sums_;  // kind, stage
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OP_COSTS_H_
