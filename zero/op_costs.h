// OpCosts: the processor time of a worker's operations, by stage.
//
//   OpCosts costs({.stages = S, .from = Iteration(3)});
//   engine_options.costs = &costs;                        // … train …
//   costs.Means();                                        // of training, iteration 3 and later
//
// Processor time, not the clock's: what another thread takes meanwhile does not count. Thread-safe.
#ifndef RINGZERO_ZERO_OP_COSTS_H_
#define RINGZERO_ZERO_OP_COSTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "sharding/op.h"
#include "sharding/simulate.h"

namespace ringzero {

// Of the calling thread.
int64_t ThreadNanoseconds();

struct OpCostsOptions {
  int stages = 0;
  Iteration from{0};  // the first that counts
};

class OpCosts {
 public:
  explicit OpCosts(const OpCostsOptions& options) : options_(options) {}

  // An operation has taken so much; a part of it with `count` 0.
  void Count(const Op& op, int64_t nanoseconds, int count);
  // The computing thread has ended `op`: it takes what this thread has run for since the last call.
  void EndCompute(const Op& op);

  // By stage, what a forward, backward, add and update took on average; 0 for what was not done.
  std::vector<StageTicks> Means() const;
  int64_t lap_nanoseconds() const;    // beside the stages, the mean of all micro-batches
  int64_t total_nanoseconds() const;  // all that was counted

 private:
  struct Sum {
    int64_t nanoseconds = 0;
    int64_t count = 0;
    int64_t mean() const { return count == 0 ? 0 : nanoseconds / count; }
  };

  const OpCostsOptions options_;
  int64_t computed_until_ = -1;  // the computing thread's alone
  mutable std::mutex mutex_;
  std::map<std::pair<OpKind, int>, Sum> sums_;  // kind, stage
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OP_COSTS_H_
