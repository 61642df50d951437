// Rate curve: the learning rate of each update, a pure function of the update's number: DeepSpeed's
// five schedulers, and warm-up, stable phase and decay (with a stable phase of nothing, a cosine).
//
//   RateCurve curve{.type = RateCurve::Type::kWarmup,
//                   .warmup = {.min_rate = 0, .max_rate = 1e-3, .updates = 100}};
//   RateAt(curve, /*base=*/1e-3, /*update=*/0).rate;   // 0
//
// Updates count from 0. DeepSpeed's constructor sets the rate of update 0 and each call of step()
// the next one, so a warm-up runs its minimum twice. A restart at update t needs nothing but t.
#ifndef RINGZERO_ZERO_OPTIMIZER_RATE_CURVE_H_
#define RINGZERO_ZERO_OPTIMIZER_RATE_CURVE_H_

#include <cstdint>
#include <optional>

namespace ringzero {

struct RateCurve {
  enum class Type {
    kConstant,
    kWarmup,
    kWarmupDecay,
    kWarmupCosine,
    kOneCycle,
    kRangeTest,
    kPhases
  };
  enum class Ramp { kLog, kLinear };

  struct Warmup {  // WarmupLR, WarmupDecayLR, WarmupCosineLR
    double min_rate = 0;
    std::optional<double> max_rate;  // absent: the optimizer's rate
    int64_t updates = 1000;          // 1 counts as 2
    int64_t total_updates = 0;       // decay and cosine: until the lowest rate
    Ramp ramp = Ramp::kLog;
    double min_ratio = 0;              // cosine: of the optimizer's rate, where the ramp begins
    double cosine_min_ratio = 0.0001;  // cosine: of it, at the end
  };
  struct OneCycle {
    double min_rate = 0;
    double max_rate = 0;
    double first_updates = 2000;           // from the lowest to the highest rate
    std::optional<double> second_updates;  // and back; absent: as many
    int64_t first_stairs = 0;              // 0: a straight line
    std::optional<int64_t> second_stairs;  // absent: as many
    double decay_updates = 0;              // after the cycle, updates per decay; 0: none
    double rate_decay = 0;
    enum class Momentum { kKept, kCycles } momentum = Momentum::kCycles;
    double min_momentum = 0.8;
    double max_momentum = 0.9;
    double momentum_decay = 0;
  };
  struct RangeTest {
    double min_rate = 1e-3;
    int64_t updates = 2000;  // per step
    double growth = 1;       // per step, of the minimum
    enum class Shape { kLine, kStairs } shape = Shape::kLine;
  };

  // A straight line up to the optimizer's rate, that rate, and a decay to `min_ratio` of it, where
  // the rate stays.
  struct Phases {
    int64_t warmup_updates = 0;  // the first one runs at 1/warmup_updates of the rate
    // The last ones before total_updates; absent: all after the warm-up.
    std::optional<int64_t> decay_updates = 0;
    int64_t total_updates = 1;
    double min_ratio = 0;
    enum class Decay { kCosine, kLinear, kRoot } decay = Decay::kCosine;  // kRoot: 1 - sqrt(x)
  };

  Type type = Type::kConstant;
  Warmup warmup;
  OneCycle one_cycle;
  RangeTest range_test;
  Phases phases;
};

struct UpdateRate {
  double rate = 0;
  // For optimizers with two betas; absent: their own.
  struct Betas {
    double beta1 = 0;
    double beta2 = 0;
  };
  std::optional<Betas> betas = std::nullopt;
};

// Makes its last phase end with update number `updates`.
void EndCurve(int64_t updates, RateCurve& curve);

// `base` is the optimizer's own rate. Thread-safe; never fails for values that the configuration
// lets pass.
UpdateRate RateAt(const RateCurve& curve, double base, int64_t update);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_RATE_CURVE_H_
