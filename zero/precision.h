// Precision: which type has what in a run. LossScale: what the loss's gradients are multiplied by,
// iteration by iteration, and which updates are skipped because they overflowed.
//
//   Precision precision{.compute = ValueType::kBf16};   // layers compute in bf16
//   SizeOf(precision.wire());                           // 2: parameters travel as bf16, too
//
//   LossScale scale({.initial = 65536, .dynamic = true}, {.lag = 2, .warmup = 300});
//   scale.Of(t);                   // of t's gradients, and what its update divides by
//   scale.Note(t, !isfinite(norm));  // every iteration once, in order
//
// The recurrence is DeepSpeed's (runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale; with
// a hysteresis of 1 and kStays runtime/fp16/fused_optimizer.py, FP16_Optimizer._update_scale). In
// dp, with a lag of 1, so are its numbers. Under the cdp rules an iteration begins before the
// overflow of the one before it can be known: the scale of iteration t has seen those up to t - 2
// (docs/precision.md). Iterations of a warm-up are of dp.
#ifndef RINGZERO_ZERO_PRECISION_H_
#define RINGZERO_ZERO_PRECISION_H_

#include <map>
#include <optional>

#include "absl/status/status.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {

// What the loss's gradients are multiplied by (LossScale).
struct LossScaleOptions {
  double initial = 1;    // fp16.loss_scale, or 2 to the power of fp16.initial_scale_power
  bool dynamic = false;  // fp16.loss_scale is 0; false: the scale stays as it is
  int window = 1000;     // fp16.loss_scale_window: good iterations before the scale doubles
  int hysteresis = 2;    // fp16.hysteresis: which overflow (1, 2, …) halves the scale; < 1: none
  bool consecutive_hysteresis = false;  // a good iteration begins hysteresis' count again
  double minimum = 1;                   // fp16.min_loss_scale
  enum class AtMinimum { kEndsRun, kStays } at_minimum = AtMinimum::kEndsRun;  // an overflow there
};

struct Precision {
  ValueType compute = ValueType::kFp32;  // parameters and activations where layers run
  std::optional<ValueType> parameters;   // versions as they travel; none: as layers compute
  ValueType sums = ValueType::kFp32;     // as they travel; kBf16: rounded stochastically
  LossScaleOptions loss_scale;
  bool skip_overflows = false;  // Plan::skip_overflows

  // The type of versions as they travel; masters are fp32.
  ValueType wire() const { return parameters.value_or(compute); }
};

// Not thread-safe.
class LossScale {
 public:
  struct Seen {
    int lag = 1;     // the scale of iteration t follows from overflows up to t - lag; at least 1
    int warmup = 0;  // in so many iterations from the first on up to t - 1
  };
  // All that iterations before `noted` have left.
  struct History {
    int noted = 0;  // iterations
    double scale = 1;
    double scale_of_next = 1;  // Of(noted)
    int hysteresis = 1;        // overflows that are still let pass
    int last_overflow = -1;
    int skipped = 0;  // iterations
    bool operator==(const History&) const = default;
  };
  // Without a history: from iteration 0 on.
  LossScale(const LossScaleOptions& options, const Seen& seen,
            const std::optional<History>& history = {});

  // After all that has been noted.
  const History& history() const { return so_far_; }

  // Of the next iteration that has not been noted. OutOfRange: it overflowed, the scale is already
  // at its minimum, and that ends the run.
  absl::Status Note(int iteration, bool overflow);

  // All that follow: of an iteration among the last kKept noted, and those whose scale they decide.
  static constexpr int kKept = 4;
  double Of(int iteration) const;
  bool Overflowed(int iteration) const;  // noted
  // Updates that iterations before this one made: what a rate and a moment's age count.
  int UpdatesBefore(int iteration) const;  // noted up to it, or the next one

 private:
  absl::Status Advance(bool overflow);
  int LagOf(int iteration) const { return iteration < seen_.warmup ? 1 : seen_.lag; }

  const LossScaleOptions options_;
  const Seen seen_;
  History so_far_;
  std::map<int, double> scales_;       // by iteration
  std::map<int, int> skipped_before_;  // by iteration
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_PRECISION_H_
