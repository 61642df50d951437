// What an update computes for each value: one source for Highway's vectors, floats and a GPU.
//
//   Values<Scalar> v{theta, sum, first, second};
//   theta = Next<Divide::kExactly>(AdamStep{.divisor = 8, …}, v);   // v.first, v.second: now new
//   for (int64_t i = first; i < span.count; i += threads) UpdateValue(step, span, i);
//
// torch's add with a factor rounds once, so it is a fused multiply-add here; a product and a sum
// that torch does one after the other are two operations. M is Scalar (arithmetic.h) or a type with
// the same operations on vectors. A file that Highway compiles for each target includes this header
// once per target, as Highway's own headers. Written in C++17.
#if defined(RINGZERO_ZERO_OPTIMIZER_FORMULAS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGZERO_ZERO_OPTIMIZER_FORMULAS_H_
#undef RINGZERO_ZERO_OPTIMIZER_FORMULAS_H_
#else
#define RINGZERO_ZERO_OPTIMIZER_FORMULAS_H_
#endif

#include <cstdint>
#include <type_traits>

#include "zero/optimizer/arithmetic.h"
#include "zero/optimizer/kernels.h"

#undef RZ_FORMULA
#undef RZ_FORMULA_NAMESPACE
#ifdef HWY_NAMESPACE
#define RZ_FORMULA HWY_INLINE
#define RZ_FORMULA_NAMESPACE HWY_NAMESPACE
HWY_BEFORE_NAMESPACE();
#else
#define RZ_FORMULA RZ_BOTH_SIDES
#define RZ_FORMULA_NAMESPACE plain
#endif

namespace ringzero {
namespace RZ_FORMULA_NAMESPACE {

template <class M>
struct Values {
  typename M::V theta, sum, first, second;
};

// How a sum becomes a gradient. kByReciprocal: step.divisor is the divisor's exact reciprocal.
enum class Divide { kExactly, kByReciprocal };

template <Divide kDivide, class M, class Step>
RZ_FORMULA typename M::V GradientOf(const Step& step, const Values<M>& v) {
  const auto divisor = M::Set(step.divisor);
  const auto average =
      kDivide == Divide::kByReciprocal ? M::Mul(v.sum, divisor) : M::Div(v.sum, divisor);
  return M::Mul(average, M::Set(step.clip));
}

// The gradient, with the weight decay added to it (L2).
template <Divide kDivide, class M, class Step>
RZ_FORMULA typename M::V DecayedGradientOf(const Step& step, const Values<M>& v) {
  const auto g = GradientOf<kDivide>(step, v);
  return step.weight_decay != 0 ? M::MulAdd(M::Set(step.weight_decay), v.theta, g) : g;
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const SgdStep& step, Values<M>& v) {
  auto g = DecayedGradientOf<kDivide>(step, v);
  if (step.has_momentum) {
    const auto momentum = M::Set(step.momentum);
    v.first = step.first_time ? g : M::MulAdd(M::Set(step.undamped), g, M::Mul(v.first, momentum));
    g = step.nesterov ? M::MulAdd(momentum, v.first, g) : v.first;
  }
  return M::NegMulAdd(M::Set(step.rate), g, v.theta);
}

template <class M, class Step>
RZ_FORMULA void TakeIntoMoments(const Step& step, typename M::V g, Values<M>& v) {
  v.first =
      M::MulAdd(M::Set(step.betas.one_minus_beta1), g, M::Mul(v.first, M::Set(step.betas.beta1)));
  v.second = M::MulAdd(M::Mul(M::Set(step.betas.one_minus_beta2), g), g,
                       M::Mul(v.second, M::Set(step.betas.beta2)));
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const AdamStep& step, Values<M>& v) {
  TakeIntoMoments(step, DecayedGradientOf<kDivide>(step, v), v);
  const auto root = M::Div(M::Sqrt(v.second), M::Set(step.root_correction2));
  const auto denominator = M::Add(root, M::Set(step.epsilon));
  return M::Sub(M::Mul(v.theta, M::Set(step.keep)),
                M::Div(M::Mul(M::Set(step.step_size), v.first), denominator));
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const LionStep& step, Values<M>& v) {
  const auto g = GradientOf<kDivide>(step, v);
  const auto direction =
      M::MulAdd(M::Set(step.betas.one_minus_beta1), g, M::Mul(v.first, M::Set(step.betas.beta1)));
  v.first =
      M::MulAdd(M::Set(step.betas.one_minus_beta2), g, M::Mul(v.first, M::Set(step.betas.beta2)));
  const auto moved = M::IfAtLeast(direction, M::Set(step.least),
                                  M::CopySign(M::Set(step.rate), direction), direction);
  return M::Sub(M::Mul(v.theta, M::Set(step.keep)), moved);
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const AdagradStep& step, Values<M>& v) {
  const auto g = DecayedGradientOf<kDivide>(step, v);
  v.first = M::MulAdd(g, g, v.first);
  const auto denominator = M::Add(M::Sqrt(v.first), M::Set(step.epsilon));
  return M::Sub(v.theta, M::Div(M::Mul(M::Set(step.rate), g), denominator));
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const LambStep& step, Values<M>& v) {
  if (step.takes_gradient) TakeIntoMoments(step, GradientOf<kDivide>(step, v), v);
  const auto root = M::Sqrt(M::Div(v.second, M::Set(step.correction2)));
  const auto adam =
      M::Div(M::Div(v.first, M::Set(step.correction1)), M::Add(root, M::Set(step.epsilon)));
  return M::MulAdd(M::Set(step.weight_decay), v.theta, adam);
}

template <Divide kDivide, class M>
RZ_FORMULA typename M::V Next(const MuonStep& step, Values<M>& v) {
  const auto g = GradientOf<kDivide>(step, v), share = M::Set(step.one_minus_momentum);
  v.first = M::MulAdd(share, M::Sub(g, v.first), v.first);
  return M::NegMulAdd(share, M::Sub(v.first, g), v.first);
}

template <Divide, class M>
RZ_FORMULA typename M::V Next(const MoveStep& step, Values<M>& v) {
  return M::NegMulAdd(M::Set(step.rate), v.sum, M::Mul(v.theta, M::Set(step.keep)));
}

// The parts of `span` that `step` reads and writes. LambStep and MuonStep write no wire copy and no
// prediction: their `out` is no version. An unread input points to one that is read.
template <class Step>
RZ_FORMULA UpdateSpan SpanOf(const Step& step, UpdateSpan span) {
  if constexpr (std::is_same_v<Step, LambStep>) {
    if (!step.takes_gradient) span.sum = span.theta;
  }
  if constexpr (std::is_same_v<Step, MuonStep>) span.theta = span.sum;
  if constexpr (std::is_same_v<Step, LambStep> || std::is_same_v<Step, MuonStep>) {
    span.wire_type = ValueType::kFp32;
    span.predicted = nullptr;
  }
  return span;
}

// Updates value i of `span`: θ, states, wire copy and prediction. `out` may be `theta`.
template <Divide kDivide = Divide::kExactly, class Step>
RZ_FORMULA void UpdateValue(const Step& step, const UpdateSpan& span, int64_t i) {
  float* const first = Step::kStates > 0 ? span.first : nullptr;
  float* const second = Step::kStates > 1 ? span.second : nullptr;
  Values<Scalar> v{span.theta[i], span.sum[i], first != nullptr ? first[i] : 0,
                   second != nullptr ? second[i] : 0};
  const float out = Next<kDivide>(step, v);
  if (first != nullptr) first[i] = v.first;
  if (second != nullptr) second[i] = v.second;
  span.out[i] = out;
  if (span.wire_type != ValueType::kFp32) span.wire[i] = ToWire(span.wire_type, out);
  if (span.predicted != nullptr) StorePredicted(span, i, v.theta, out);
}

}  // namespace RZ_FORMULA_NAMESPACE
}  // namespace ringzero

#ifdef HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // per target
