// DeepSpeed's formulas (runtime/lr_schedules.py), in its order of operations; and ours, kPhases.
#include "zero/optimizer/rate_curve.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ringzero {
namespace {

constexpr double kCycleBeta2 = 0.99;

// `last` is DeepSpeed's last_batch_iteration: -1 before the first update, then update - 1.
double Ramp(const RateCurve::Warmup& warmup, int64_t last) {
  const int64_t updates = std::max<int64_t>(2, warmup.updates);
  if (warmup.ramp == RateCurve::Ramp::kLinear) return double(last) / double(updates);
  return 1.0 / std::log(double(updates)) * std::log(double(last + 1));
}

double WarmupRate(const RateCurve& curve, double base, int64_t last) {
  const RateCurve::Warmup& warmup = curve.warmup;
  const int64_t updates = std::max<int64_t>(2, warmup.updates);
  if (last < 0) return warmup.min_rate;
  double gamma = 1;
  if (last < updates) {
    gamma = Ramp(warmup, last);
  } else if (curve.type == RateCurve::Type::kWarmupDecay) {
    gamma = std::max(0.0, double(warmup.total_updates - last) /
                              std::max(1.0, double(warmup.total_updates - updates)));
  }
  return warmup.min_rate + (warmup.max_rate.value_or(base) - warmup.min_rate) * gamma;
}

double CosineRate(const RateCurve::Warmup& warmup, double base, int64_t last) {
  const int64_t updates = std::max<int64_t>(2, warmup.updates);
  if (last < 0) return 0;
  double ratio = 0;
  if (last < updates) {
    ratio = warmup.min_ratio + Ramp(warmup, last) * (1.0 - warmup.min_ratio);
  } else {
    const int64_t done = last - updates + 1;
    const int64_t all = std::max<int64_t>(1, warmup.total_updates - updates);
    const double progress = std::min(1.0, double(done) / double(all));
    const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
    ratio = std::max(0.0, warmup.cosine_min_ratio + (1.0 - warmup.cosine_min_ratio) * cosine);
  }
  return base * ratio;
}

// How far up its way is the cycle: 0 at the lowest rate, 1 at the highest.
double CycleScale(const RateCurve::OneCycle& cycle, int64_t last) {
  const double first = cycle.first_updates;
  const double second = cycle.second_updates.value_or(first);
  const double total = first + second;
  const double turn = first / total;
  const double iteration = double(last + 1);
  const double x = 1.0 + iteration / total - std::floor(1 + iteration / total);
  const bool rising = x <= turn;
  const int64_t stairs =
      rising ? cycle.first_stairs : cycle.second_stairs.value_or(cycle.first_stairs);
  if (stairs <= 0) return rising ? x / turn : (x - 1) / (turn - 1);
  const double at = std::fmod(iteration, total);
  const double position =
      at <= first ? at * double(stairs) / first : (total - at) * double(stairs) / second;
  return std::floor(position) / double(stairs);
}

UpdateRate CycleRate(const RateCurve::OneCycle& cycle, int64_t last) {
  UpdateRate out;
  const double total = cycle.first_updates + cycle.second_updates.value_or(cycle.first_updates);
  double beta1 = cycle.min_momentum;
  out.rate = cycle.min_rate;
  if (last >= 0 && double(last) < total) {
    const double scale = CycleScale(cycle, last);
    out.rate = cycle.min_rate + (cycle.max_rate - cycle.min_rate) * scale;
    beta1 = cycle.max_momentum - (cycle.max_momentum - cycle.min_momentum) * scale;
  } else if (last >= 0) {
    const double decays =
        cycle.decay_updates == 0 ? 0 : (double(last) - total + 1) / cycle.decay_updates;
    out.rate = cycle.min_rate / (1 + cycle.rate_decay * decays);
    beta1 = cycle.max_momentum * (1 + cycle.momentum_decay * decays);
  }
  if (cycle.momentum == RateCurve::OneCycle::Momentum::kCycles) {
    out.betas = {.beta1 = beta1, .beta2 = kCycleBeta2};
  }
  return out;
}

double RangeTestRate(const RateCurve::RangeTest& test, int64_t update) {
  double steps = double(update) / double(test.updates);
  if (test.shape == RateCurve::RangeTest::Shape::kStairs) steps = std::floor(steps);
  return test.min_rate * (1 + test.growth * steps);
}

double PhasesRate(const RateCurve::Phases& phases, double base, int64_t update) {
  if (update < phases.warmup_updates) {
    return base * double(update + 1) / double(phases.warmup_updates);
  }
  const int64_t decays =
      phases.decay_updates.value_or(phases.total_updates - phases.warmup_updates);
  const int64_t into = update - (phases.total_updates - decays);
  if (into <= 0) return base;
  const double x = std::min(1.0, double(into) / double(std::max<int64_t>(1, decays)));
  double left = 0;
  switch (phases.decay) {
    case RateCurve::Phases::Decay::kCosine: left = (1 + std::cos(std::numbers::pi * x)) / 2; break;
    case RateCurve::Phases::Decay::kLinear: left = 1 - x; break;
    case RateCurve::Phases::Decay::kRoot: left = 1 - std::sqrt(x); break;
  }
  return base * (phases.min_ratio + (1 - phases.min_ratio) * left);
}

}  // namespace

void EndCurve(int64_t updates, RateCurve& curve) {
  curve.warmup.total_updates = updates;
  curve.phases.total_updates = updates;
}

UpdateRate RateAt(const RateCurve& curve, double base, int64_t update) {
  const int64_t last = update - 1;
  switch (curve.type) {
    case RateCurve::Type::kConstant: break;
    case RateCurve::Type::kWarmup:
    case RateCurve::Type::kWarmupDecay: return {.rate = WarmupRate(curve, base, last)};
    case RateCurve::Type::kWarmupCosine: return {.rate = CosineRate(curve.warmup, base, last)};
    case RateCurve::Type::kOneCycle: return CycleRate(curve.one_cycle, last);
    case RateCurve::Type::kRangeTest: return {.rate = RangeTestRate(curve.range_test, update)};
    case RateCurve::Type::kPhases: return {.rate = PhasesRate(curve.phases, base, update)};
  }
  return {.rate = base};
}

}  // namespace ringzero
