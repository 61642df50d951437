// Each pass once per processor, by Highway (google.github.io/highway): this file is compiled again
// for every target, and HWY_DYNAMIC_DISPATCH takes the best that there is.
#include "zero/update/kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "zero/update/reference.h"

// Vectors whose length is only known at run time cannot be members of a class.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zero/update/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ringzero {
namespace HWY_NAMESPACE {
namespace {

#if HWY_NATIVE_FMA && HWY_HAVE_FLOAT64

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Values that are written, and not read again soon, go past the caches. A line that was just read
// (in place) is there anyhow.
enum class Store { kPlain, kStream };

// A clipped gradient from its sum. A divisor that is a power of two, and so exact as a reciprocal
// too, saves a division.
class Gradient {
 public:
  Gradient(float divisor, float clip)
      : divisor_(hn::Set(D(), divisor)),
        reciprocal_(hn::Set(D(), 1 / divisor)),
        clip_(hn::Set(D(), clip)) {}
  static bool IsExact(float divisor) {
    uint32_t bits;
    std::memcpy(&bits, &divisor, sizeof(bits));
    return (bits & 0x7fffff) == 0 && divisor >= 1 && divisor < 1e30f;
  }
  template <bool kExact>
  V Of(V sum) const {
    return hn::Mul(kExact ? hn::Mul(sum, reciprocal_) : hn::Div(sum, divisor_), clip_);
  }

 private:
  V divisor_, reciprocal_, clip_;
};

// `value` in a wire type, as it is stored.
template <WireType kType>
hn::Vec<hn::Rebind<uint16_t, D>> ToWire(V value) {
  const D d;
  const hn::RebindToUnsigned<D> bits_tag;
  const hn::Rebind<uint16_t, D> half;
  if constexpr (kType == WireType::kFp16) {
    return hn::BitCast(half, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    const auto bits = hn::BitCast(bits_tag, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(bits_tag, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7fff))));
    const auto quiet = hn::Or(high, hn::Set(bits_tag, 0x40));
    const auto nan = hn::RebindMask(bits_tag, hn::IsNaN(hn::BitCast(d, bits)));
    return hn::TruncateTo(half, hn::IfThenElse(nan, quiet, rounded));
  }
}

struct Values {
  V theta, sum, first, second;
};

// The values of a run that goes to the wire: they become what is stored there a run at a time, in
// whole lines. Half a vector at a time, in between the lines of another stream, would leave the
// processor with parts of lines.
constexpr int64_t kWireRun = 512;

template <Store kStore, WireType kWire>
void StoreWire(const float* values, int64_t count, uint16_t* to) {
  const D d;
  const hn::Rebind<uint16_t, D> half;
  const hn::Repartition<uint16_t, D> whole;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (kStore == Store::kStream) {
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto low = ToWire<kWire>(hn::Load(d, values + i));
      const auto high = ToWire<kWire>(hn::Load(d, values + i + lanes));
      hn::Stream(hn::Combine(whole, high, low), whole, to + i);
    }
  }
  for (; i < count; i += lanes) {
    hn::StoreU(ToWire<kWire>(hn::Load(d, values + i)), half, to + i);
  }
}

// What the next update may make of θ if it goes on as this one.
V PredictedFrom(V theta, V out, V momentum) {
  return hn::MulAdd(momentum, hn::Sub(out, theta), out);
}

// Update: Values -> the new θ, with the new states written back. Whole vectors first; the rest goes
// through one vector of its own, padded, so that it has the same operations. `span` and `update`
// are copies, which no store can alter: they stay in registers, once `update` is inlined (flatten).
template <Store kStore, WireType kWire, bool kFirst, bool kSecond, class Update>
__attribute__((flatten)) void Walk(UpdateSpan span, Update update) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V momentum = hn::Set(d, span.momentum);
  const int64_t whole = span.count / lanes * lanes;
  constexpr bool kWrites = kWire != WireType::kNone;
  HWY_ALIGN float written[kWrites ? kWireRun : 1];
  int64_t i = 0;
  while (i < whole) {
    const int64_t from = i, to = kWrites ? std::min(whole, from + kWireRun) : whole;
    for (; i < to; i += lanes) {
      Values values{hn::LoadU(d, span.theta + i), hn::LoadU(d, span.sum + i), hn::Zero(d),
                    hn::Zero(d)};
      if (kFirst) values.first = hn::LoadU(d, span.first + i);
      if (kSecond) values.second = hn::LoadU(d, span.second + i);
      const V out = update(values);
      if (kFirst) hn::StoreU(values.first, d, span.first + i);
      if (kSecond) hn::StoreU(values.second, d, span.second + i);
      if (kStore == Store::kStream) {
        hn::Stream(out, d, span.out + i);
      } else {
        hn::StoreU(out, d, span.out + i);
      }
      if (kWrites) hn::Store(out, d, written + (i - from));
      if (span.predicted != nullptr) {
        hn::StoreU(PredictedFrom(values.theta, out, momentum), d, span.predicted + i);
      }
    }
    if constexpr (kWrites) StoreWire<kStore, kWire>(written, to - from, span.wire + from);
  }
  const size_t rest = static_cast<size_t>(span.count - i) * sizeof(float);
  if (rest == 0) return;
  HWY_ALIGN float padded[4][HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded[0], span.theta + i, rest);
  std::memcpy(padded[1], span.sum + i, rest);
  if (kFirst) std::memcpy(padded[2], span.first + i, rest);
  if (kSecond) std::memcpy(padded[3], span.second + i, rest);
  Values values{hn::Load(d, padded[0]), hn::Load(d, padded[1]), hn::Load(d, padded[2]),
                hn::Load(d, padded[3])};
  const V out = update(values);
  hn::Store(out, d, padded[0]);
  hn::Store(values.first, d, padded[2]);
  hn::Store(values.second, d, padded[3]);
  std::memcpy(span.out + i, padded[0], rest);
  if constexpr (kWire != WireType::kNone) {
    HWY_ALIGN uint16_t wire[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(ToWire<kWire>(hn::Load(d, padded[0])), hn::Rebind<uint16_t, D>(), wire);
    std::memcpy(span.wire + i, wire, rest / 2);
  }
  if (span.predicted != nullptr) {
    HWY_ALIGN float predicted[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(PredictedFrom(values.theta, out, momentum), d, predicted);
    std::memcpy(span.predicted + i, predicted, rest);
  }
  if (kFirst) std::memcpy(span.first + i, padded[2], rest);
  if (kSecond) std::memcpy(span.second + i, padded[3], rest);
}

// To a whole vector.
bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % (hn::Lanes(D()) * sizeof(float)) == 0;
}

template <WireType kWire, bool kFirst, bool kSecond, class Update>
void WalkTo(const UpdateSpan& span, const Update& update) {
  if (span.out != span.theta && IsAligned(span.out) && IsAligned(span.wire)) {
    Walk<Store::kStream, kWire, kFirst, kSecond>(span, update);
    hwy::FlushStream();  // such stores are ordered by nothing else
  } else {
    Walk<Store::kPlain, kWire, kFirst, kSecond>(span, update);
  }
}

template <bool kFirst, bool kSecond, class Update>
void WalkAny(const UpdateSpan& span, const Update& update) {
  switch (span.wire_type) {
    case WireType::kNone: return WalkTo<WireType::kNone, kFirst, kSecond>(span, update);
    case WireType::kBf16: return WalkTo<WireType::kBf16, kFirst, kSecond>(span, update);
    case WireType::kFp16: return WalkTo<WireType::kFp16, kFirst, kSecond>(span, update);
  }
}

// Calls walk(true_type) or walk(false_type): whether the divisor is exact as a reciprocal.
template <class WalkWith>
void ByDivisor(float divisor, const WalkWith& walk) {
  Gradient::IsExact(divisor) ? walk(std::true_type()) : walk(std::false_type());
}

template <bool kMomentum>
void Sgd(const SgdStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V decay = hn::Set(d, step.weight_decay), momentum = hn::Set(d, step.momentum),
          undamped = hn::Set(d, step.undamped), rate = hn::Set(d, step.rate);
  const bool decays = step.weight_decay != 0, first_time = step.first_time,
             nesterov = step.nesterov;
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkAny<kMomentum, false>(span, [=](Values& values) HWY_ATTR {
      V g = gradient.Of<decltype(exact)::value>(values.sum);
      if (decays) g = hn::MulAdd(decay, values.theta, g);
      if (kMomentum) {
        values.first = first_time ? g : hn::MulAdd(undamped, g, hn::Mul(values.first, momentum));
        g = nesterov ? hn::MulAdd(momentum, values.first, g) : values.first;
      }
      return hn::NegMulAdd(rate, g, values.theta);
    });
  });
}

void SgdTarget(const SgdStep& step, const UpdateSpan& span) {
  step.has_momentum ? Sgd<true>(step, span) : Sgd<false>(step, span);
}

void AdamTarget(const AdamStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V keep = hn::Set(d, step.keep), decay = hn::Set(d, step.weight_decay),
          beta1 = hn::Set(d, step.beta1), one_minus_beta1 = hn::Set(d, step.one_minus_beta1),
          beta2 = hn::Set(d, step.beta2), one_minus_beta2 = hn::Set(d, step.one_minus_beta2),
          root_correction2 = hn::Set(d, step.root_correction2), epsilon = hn::Set(d, step.epsilon),
          step_size = hn::Set(d, step.step_size);
  const bool decays = step.weight_decay != 0;
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkAny<true, true>(span, [=](Values& values) HWY_ATTR {
      V g = gradient.Of<decltype(exact)::value>(values.sum);
      if (decays) g = hn::MulAdd(decay, values.theta, g);
      values.first = hn::MulAdd(one_minus_beta1, g, hn::Mul(values.first, beta1));
      values.second = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(values.second, beta2));
      const V denominator = hn::Add(hn::Div(hn::Sqrt(values.second), root_correction2), epsilon);
      return hn::Sub(hn::Mul(values.theta, keep),
                     hn::Div(hn::Mul(step_size, values.first), denominator));
    });
  });
}

void LionTarget(const LionStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V keep = hn::Set(d, step.keep), beta1 = hn::Set(d, step.beta1),
          one_minus_beta1 = hn::Set(d, step.one_minus_beta1), beta2 = hn::Set(d, step.beta2),
          one_minus_beta2 = hn::Set(d, step.one_minus_beta2), rate = hn::Set(d, step.rate),
          least = hn::Set(d, step.least);
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkAny<true, false>(span, [=](Values& values) HWY_ATTR {
      const V g = gradient.Of<decltype(exact)::value>(values.sum);
      const V direction = hn::MulAdd(one_minus_beta1, g, hn::Mul(values.first, beta1));
      values.first = hn::MulAdd(one_minus_beta2, g, hn::Mul(values.first, beta2));
      const auto moves = hn::Ge(hn::Abs(direction), least);
      const V moved = hn::IfThenElse(moves, hn::CopySign(rate, direction), direction);
      return hn::Sub(hn::Mul(values.theta, keep), moved);
    });
  });
}

void AdagradTarget(const AdagradStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V decay = hn::Set(d, step.weight_decay), epsilon = hn::Set(d, step.epsilon),
          rate = hn::Set(d, step.rate);
  const bool decays = step.weight_decay != 0;
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkAny<true, false>(span, [=](Values& values) HWY_ATTR {
      V g = gradient.Of<decltype(exact)::value>(values.sum);
      if (decays) g = hn::MulAdd(decay, values.theta, g);
      values.first = hn::MulAdd(g, g, values.first);
      const V denominator = hn::Add(hn::Sqrt(values.first), epsilon);
      return hn::Sub(values.theta, hn::Div(hn::Mul(rate, g), denominator));
    });
  });
}

// Into memory that is read again at once: past no cache.
template <bool kFirst, bool kSecond, class Update>
void WalkNear(const UpdateSpan& span, const Update& update) {
  Walk<Store::kPlain, WireType::kNone, kFirst, kSecond>(span, update);
}

template <bool kMoments>
void Lamb(const LambStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V decay = hn::Set(d, step.weight_decay), beta1 = hn::Set(d, step.beta1),
          one_minus_beta1 = hn::Set(d, step.one_minus_beta1), beta2 = hn::Set(d, step.beta2),
          one_minus_beta2 = hn::Set(d, step.one_minus_beta2),
          correction1 = hn::Set(d, step.correction1), correction2 = hn::Set(d, step.correction2),
          epsilon = hn::Set(d, step.epsilon);
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkNear<true, true>(span, [=](Values& values) HWY_ATTR {
      if (kMoments) {
        const V g = gradient.Of<decltype(exact)::value>(values.sum);
        values.first = hn::MulAdd(one_minus_beta1, g, hn::Mul(values.first, beta1));
        values.second = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(values.second, beta2));
      }
      const V root = hn::Sqrt(hn::Div(values.second, correction2));
      const V adam = hn::Div(hn::Div(values.first, correction1), hn::Add(root, epsilon));
      return hn::MulAdd(decay, values.theta, adam);
    });
  });
}

void LambMomentsTarget(const LambStep& step, const UpdateSpan& span) { Lamb<true>(step, span); }
void LambDirectionTarget(const LambStep& step, const UpdateSpan& span) {
  UpdateSpan there = span;
  there.sum = span.theta;  // something to read
  Lamb<false>(step, there);
}

void MuonMomentTarget(const MuonStep& step, const UpdateSpan& span) {
  const D d;
  const Gradient gradient(step.divisor, step.clip);
  const V share = hn::Set(d, step.one_minus_momentum);
  UpdateSpan there = span;
  there.theta = span.sum;  // likewise
  ByDivisor(step.divisor, [&](auto exact) HWY_ATTR {
    WalkNear<true, false>(there, [=](Values& values) HWY_ATTR {
      const V g = gradient.Of<decltype(exact)::value>(values.sum);
      values.first = hn::MulAdd(share, hn::Sub(g, values.first), values.first);
      return hn::NegMulAdd(share, hn::Sub(values.first, g), values.first);
    });
  });
}

void MoveTarget(const MoveStep& step, const UpdateSpan& span) {
  const D d;
  const V keep = hn::Set(d, step.keep), rate = hn::Set(d, step.rate);
  WalkAny<false, false>(span, [=](Values& values) HWY_ATTR {
    return hn::NegMulAdd(rate, values.sum, hn::Mul(values.theta, keep));
  });
}

void AddTarget(float* sum, const float* gradient, int64_t count) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, gradient + i)), d, sum + i);
  }
  for (; i < count; ++i) sum[i] += gradient[i];
}

void SquaresTarget(const float* values, int64_t count, double* lanes) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + kSquareLanes <= count; i += kSquareLanes) {
    for (int64_t lane = 0; lane < kSquareLanes; lane += width) {
      const auto value = hn::PromoteTo(d, hn::LoadU(half, values + i + lane));
      const auto square = hn::Mul(value, value);
      hn::StoreU(hn::Add(hn::LoadU(d, lanes + lane), square), d, lanes + lane);
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
}

#else  // without a fused multiply-add (SSE, plain lanes) bits would differ

void SgdTarget(const SgdStep& step, const UpdateSpan& span) { reference::SgdPass(step, span); }
void AdamTarget(const AdamStep& step, const UpdateSpan& span) { reference::AdamPass(step, span); }
void LionTarget(const LionStep& step, const UpdateSpan& span) { reference::LionPass(step, span); }
void AdagradTarget(const AdagradStep& step, const UpdateSpan& span) {
  reference::AdagradPass(step, span);
}
void LambMomentsTarget(const LambStep& step, const UpdateSpan& span) {
  reference::LambMomentsPass(step, span);
}
void LambDirectionTarget(const LambStep& step, const UpdateSpan& span) {
  reference::LambDirectionPass(step, span);
}
void MuonMomentTarget(const MuonStep& step, const UpdateSpan& span) {
  reference::MuonMomentPass(step, span);
}
void MoveTarget(const MoveStep& step, const UpdateSpan& span) { reference::MovePass(step, span); }
void AddTarget(float* sum, const float* gradient, int64_t count) {
  reference::AddPass(sum, gradient, count);
}
void SquaresTarget(const float* values, int64_t count, double* lanes) {
  reference::SquaresPass(values, count, lanes);
}

#endif

const char* NameTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ringzero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringzero {

HWY_EXPORT(SgdTarget);
HWY_EXPORT(AdamTarget);
HWY_EXPORT(LionTarget);
HWY_EXPORT(AdagradTarget);
HWY_EXPORT(LambMomentsTarget);
HWY_EXPORT(LambDirectionTarget);
HWY_EXPORT(MuonMomentTarget);
HWY_EXPORT(MoveTarget);
HWY_EXPORT(AddTarget);
HWY_EXPORT(SquaresTarget);
HWY_EXPORT(NameTarget);

void SgdPass(const SgdStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(SgdTarget)(step, span);
}
void AdamPass(const AdamStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(AdamTarget)(step, span);
}
void LionPass(const LionStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(LionTarget)(step, span);
}
void AdagradPass(const AdagradStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(AdagradTarget)(step, span);
}
void LambMomentsPass(const LambStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(LambMomentsTarget)(step, span);
}
void LambDirectionPass(const LambStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(LambDirectionTarget)(step, span);
}
void MuonMomentPass(const MuonStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(MuonMomentTarget)(step, span);
}
void MovePass(const MoveStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(MoveTarget)(step, span);
}
void AddPass(float* sum, const float* gradient, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddTarget)(sum, gradient, count);
}
void SquaresPass(const float* values, int64_t count, double* lanes) {
  HWY_DYNAMIC_DISPATCH(SquaresTarget)(values, count, lanes);
}
double FoldLanes(const double* lanes) {
  double sum = 0;
  for (int64_t lane = 0; lane < kSquareLanes; ++lane) sum += lanes[lane];
  return sum;
}
const char* KernelTarget() { return HWY_DYNAMIC_DISPATCH(NameTarget)(); }

}  // namespace ringzero
#endif
