// Each pass once per target, by Highway (google.github.io/highway): this file is compiled again for
// every target, and HWY_DYNAMIC_DISPATCH takes the best target that this processor has.
#include "zero/optimizer/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/philox.h"
#include "zero/optimizer/arithmetic.h"

// Vectors whose length is only known at run time cannot be members of a class.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zero/optimizer/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zero/optimizer/formulas.h"  // once per target

HWY_BEFORE_NAMESPACE();
namespace ringzero {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Bits = hn::RebindToUnsigned<D>;
using Half = hn::Rebind<uint16_t, D>;
using V = hn::Vec<D>;
using VBits = hn::Vec<Bits>;
using VHalf = hn::Vec<Half>;

// Vectors without a fused multiply-add (SSE, plain lanes) change bits: there values go one by one.
#define RZ_VECTORS (HWY_NATIVE_FMA && HWY_HAVE_FLOAT64)
constexpr bool kVectors = RZ_VECTORS;

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

// A value type for formulas.h (its M): a vector of floats.
struct Vector {
  using V = hn::Vec<D>;
  static HWY_INLINE V Set(float value) { return hn::Set(D(), value); }
  static HWY_INLINE V Add(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE V Sub(V a, V b) { return hn::Sub(a, b); }
  static HWY_INLINE V Mul(V a, V b) { return hn::Mul(a, b); }
  static HWY_INLINE V Div(V a, V b) { return hn::Div(a, b); }
  static HWY_INLINE V Sqrt(V a) { return hn::Sqrt(a); }
  static HWY_INLINE V MulAdd(V a, V b, V c) { return hn::MulAdd(a, b, c); }
  static HWY_INLINE V NegMulAdd(V a, V b, V c) { return hn::NegMulAdd(a, b, c); }
  static HWY_INLINE V CopySign(V size, V sign) { return hn::CopySign(size, sign); }
  static HWY_INLINE V IfAtLeast(V a, V least, V yes, V no) {
    return hn::IfThenElse(hn::Ge(hn::Abs(a), least), yes, no);
  }
};

// kStream: values that are not read again soon are written past the caches. An update in place is
// kPlain: its lines were just read, and so are in the caches anyhow.
enum class Store { kPlain, kStream };

template <ValueType kType>
HWY_INLINE V Widen(VHalf value) {
  if constexpr (kType == ValueType::kFp16) {
    return hn::PromoteTo(D(), hn::BitCast(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), value)));
  }
}

// To bf16: adds `up` to the fp32 bits, then drops the lower 16; a NaN stays a NaN.
HWY_INLINE VHalf RoundBf16(V value, VBits up) {
  const VBits bits = hn::BitCast(Bits(), value);
  const VBits rounded = hn::ShiftRight<16>(hn::Add(bits, up));
  const VBits quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(Bits(), 0x40));
  const auto nan = hn::RebindMask(Bits(), hn::IsNaN(value));
  return hn::TruncateTo(Half(), hn::IfThenElse(nan, quiet, rounded));
}

template <ValueType kType>
HWY_INLINE VHalf Narrow(V value) {
  if constexpr (kType == ValueType::kFp16) {
    return hn::BitCast(Half(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    const VBits high = hn::ShiftRight<16>(hn::BitCast(Bits(), value));
    const VBits odd = hn::And(high, hn::Set(Bits(), 1));
    return RoundBf16(value, hn::Add(odd, hn::Set(Bits(), 0x7fff)));
  }
}

// How many values are narrowed and stored to the wire at a time, in whole cache lines. Half a
// vector at a time, in between the lines of another stream (`out`), would leave the processor with
// parts of lines.
constexpr int64_t kWireRun = 512;

template <Store kStore, ValueType kWire>
void StoreWire(const float* values, int64_t count, uint16_t* to) {
  const D d;
  const int64_t lanes = Lanes();
  int64_t i = 0;
#if RZ_VECTORS  // plain lanes have no Combine
  if (kStore == Store::kStream) {
    const hn::Repartition<uint16_t, D> whole;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto low = Narrow<kWire>(hn::Load(d, values + i));
      const auto high = Narrow<kWire>(hn::Load(d, values + i + lanes));
      hn::Stream(hn::Combine(whole, high, low), whole, to + i);
    }
  }
#endif
  for (; i < count; i += lanes) hn::StoreU(Narrow<kWire>(hn::Load(d, values + i)), Half(), to + i);
}

// Whether `address` is aligned to a whole vector.
bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % (hn::Lanes(D()) * sizeof(float)) == 0;
}

// Whole vectors first; the rest goes value by value, through the same operations. `span` and `step`
// are copies, which no store can alter: they stay in registers, once Next is inlined (flatten).
template <Store kStore, ValueType kWire, int kStates, Divide kDivide, class Step>
__attribute__((flatten)) void Walk(UpdateSpan span, Step step) {
  const D d;
  const int64_t whole = kVectors ? span.count / Lanes() * Lanes() : 0;
  constexpr bool kWrites = kWire != ValueType::kFp32;
  HWY_ALIGN float written[kWrites ? kWireRun : 1];
  HWY_ALIGN float guessed[kWrites ? kWireRun : 1];
  // Predictions are not read here, so they are written past the caches where that can be.
  const bool predicts = span.predicted != nullptr, streams = predicts && IsAligned(span.predicted);
  int64_t i = 0;
  while (i < whole) {
    const int64_t from = i, to = kWrites ? std::min(whole, from + kWireRun) : whole;
    for (; i < to; i += Lanes()) {
      Values<Vector> v{hn::LoadU(d, span.theta + i), hn::LoadU(d, span.sum + i), hn::Zero(d),
                       hn::Zero(d)};
      if (kStates > 0) v.first = hn::LoadU(d, span.first + i);
      if (kStates > 1) v.second = hn::LoadU(d, span.second + i);
      const V out = Next<kDivide>(step, v);
      if (kStates > 0) hn::StoreU(v.first, d, span.first + i);
      if (kStates > 1) hn::StoreU(v.second, d, span.second + i);
      if (kStore == Store::kStream) {
        hn::Stream(out, d, span.out + i);
      } else {
        hn::StoreU(out, d, span.out + i);
      }
      if (kWrites) hn::Store(out, d, written + (i - from));
      if (predicts) {
        float* const guess =
            kWrites ? guessed + (i - from) : static_cast<float*>(span.predicted) + i;
        // As StorePredicted (arithmetic.h).
        const V value = hn::MulAdd(hn::Set(d, span.factor), hn::Sub(out, v.theta), out);
        if (streams && !kWrites) {
          hn::Stream(value, d, guess);
        } else {
          hn::StoreU(value, d, guess);
        }
      }
    }
    if constexpr (kWrites) {
      StoreWire<kStore, kWire>(written, to - from, span.wire + from);
      auto* const guesses = static_cast<uint16_t*>(span.predicted);
      if (streams) {
        StoreWire<Store::kStream, kWire>(guessed, to - from, guesses + from);
      } else if (predicts) {
        StoreWire<Store::kPlain, kWire>(guessed, to - from, guesses + from);
      }
    }
  }
  if (kStore == Store::kStream || streams) hwy::FlushStream();  // nothing else orders such stores
  for (; i < span.count; ++i) UpdateValue<kDivide>(step, span, i);
}

template <ValueType kWire, int kStates, Divide kDivide, class Step>
void WalkTo(const Step& step, const UpdateSpan& span) {
  if (span.out != span.theta && IsAligned(span.out) && IsAligned(span.wire)) {
    Walk<Store::kStream, kWire, kStates, kDivide>(span, step);
  } else {
    Walk<Store::kPlain, kWire, kStates, kDivide>(span, step);
  }
}

template <int kStates, Divide kDivide, class Step>
void WalkAny(const Step& step, const UpdateSpan& span) {
  if constexpr (std::is_same_v<Step, LambStep> || std::is_same_v<Step, MuonStep>) {
    // `out` is read again at once, so it is not written past the caches.
    Walk<Store::kPlain, ValueType::kFp32, kStates, kDivide>(span, step);
  } else {
    switch (span.wire_type) {
      case ValueType::kFp32: return WalkTo<ValueType::kFp32, kStates, kDivide>(step, span);
      case ValueType::kBf16: return WalkTo<ValueType::kBf16, kStates, kDivide>(step, span);
      case ValueType::kFp16: return WalkTo<ValueType::kFp16, kStates, kDivide>(step, span);
    }
  }
}

template <Divide kDivide, class Step>
void WalkStates(const Step& step, const UpdateSpan& span) {
  if constexpr (std::is_same_v<Step, SgdStep>) {
    if (!step.has_momentum) return WalkAny<0, kDivide>(step, span);
  }
  WalkAny<Step::kStates, kDivide>(step, span);
}

template <class Step>
void Update(Step step, UpdateSpan span) {
  span = SpanOf(step, span);
  if constexpr (!std::is_same_v<Step, MoveStep>) {
    // The reciprocal of a power of two is exact: multiplications then replace divisions.
    const bool is_power = (BitsOf(step.divisor) & 0x7fffff) == 0;
    if (is_power && step.divisor >= 1 && step.divisor < 1e30f) {
      step.divisor = 1 / step.divisor;
      return WalkStates<Divide::kByReciprocal>(step, span);
    }
  }
  WalkStates<Divide::kExactly>(step, span);
}

void UpdateTarget(const UpdateStep& step, const UpdateSpan& span) {
  std::visit([&](const auto& one) { Update(one, span); }, step);
}

void AddTarget(float* sum, const float* gradient, int64_t count) {
  const D d;
  int64_t i = 0;
  for (; kVectors && i + Lanes() <= count; i += Lanes()) {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), hn::LoadU(d, gradient + i)), d, sum + i);
  }
  for (; i < count; ++i) sum[i] += gradient[i];
}

void SquaresTarget(const float* values, int64_t count, double* lanes) {
  int64_t i = 0;
#if RZ_VECTORS
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  for (; i + kSquareLanes <= count; i += kSquareLanes) {
    for (int64_t lane = 0; lane < kSquareLanes; lane += width) {
      const auto value = hn::PromoteTo(d, hn::LoadU(half, values + i + lane));
      const auto square = hn::Mul(value, value);
      hn::StoreU(hn::Add(hn::LoadU(d, lanes + lane), square), d, lanes + lane);
    }
  }
#endif
  for (; i < count; ++i) {
    const double value = values[i];
    lanes[i % kSquareLanes] += value * value;
  }
}

template <ValueType kType>
void WidenAll(const uint16_t* values, float* out, int64_t count) {
  int64_t i = 0;
  for (; kVectors && i + Lanes() <= count; i += Lanes()) {
    hn::StoreU(Widen<kType>(hn::LoadU(Half(), values + i)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = FromWire(kType, values[i]);
}

template <ValueType kType>
void NarrowAll(const float* values, uint16_t* out, int64_t count) {
  int64_t i = 0;
  for (; kVectors && i + Lanes() <= count; i += Lanes()) {
    hn::StoreU(Narrow<kType>(hn::LoadU(D(), values + i)), Half(), out + i);
  }
  for (; i < count; ++i) out[i] = ToWire(kType, values[i]);
}

template <ValueType kType>
void AddAll(float* sum, const uint16_t* values, int64_t count) {
  int64_t i = 0;
  for (; kVectors && i + Lanes() <= count; i += Lanes()) {
    const V value = Widen<kType>(hn::LoadU(Half(), values + i));
    hn::StoreU(hn::Add(hn::LoadU(D(), sum + i), value), D(), sum + i);
  }
  for (; i < count; ++i) sum[i] += FromWire(kType, values[i]);
}

void WidenTarget(ValueType type, const uint16_t* values, float* out, int64_t count) {
  type == ValueType::kBf16 ? WidenAll<ValueType::kBf16>(values, out, count)
                           : WidenAll<ValueType::kFp16>(values, out, count);
}

void NarrowTarget(ValueType type, const float* values, uint16_t* out, int64_t count) {
  type == ValueType::kBf16 ? NarrowAll<ValueType::kBf16>(values, out, count)
                           : NarrowAll<ValueType::kFp16>(values, out, count);
}

void AddNarrowTarget(ValueType type, float* sum, const uint16_t* values, int64_t count) {
  type == ValueType::kBf16 ? AddAll<ValueType::kBf16>(sum, values, count)
                           : AddAll<ValueType::kFp16>(sum, values, count);
}

#if RZ_VECTORS
// The upper half of each lane's product.
HWY_INLINE VBits MultiplyHigh(VBits a, VBits b) {
  const hn::RepartitionToWide<Bits> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(Bits(), hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  const auto upper = hn::And(odd, hn::Set(wide, 0xffffffff00000000u));
  return hn::BitCast(Bits(), hn::Or(hn::ShiftRight<32>(even), upper));
}

// Philox4x32 (base/philox.h) of as many blocks as a vector has lanes, from `block` on. `out` holds
// one block after the other: 16 bits per value.
void RandomBlocks(const RoundingKey& key, uint64_t block, uint16_t* out) {
  const Bits d;
  VBits c0 = hn::Iota(d, static_cast<uint32_t>(block)), c1 = hn::Zero(d);
  VBits c2 = hn::Set(d, static_cast<uint32_t>(key.stream));
  VBits c3 = hn::Set(d, static_cast<uint32_t>(key.stream >> 32));
  uint32_t k0 = static_cast<uint32_t>(key.key), k1 = static_cast<uint32_t>(key.key >> 32);
  const VBits m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const VBits high0 = MultiplyHigh(c0, m0), high1 = MultiplyHigh(c2, m1);
    const VBits low0 = hn::Mul(c0, m0), low1 = hn::Mul(c2, m1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, reinterpret_cast<uint32_t*>(out));  // a vector's store
}

// Adds whole vectors of whole random blocks, from value i on. Returns the first value of the rest.
int64_t AddRoundedVectors(const RoundingKey& key, int64_t first, const uint16_t* sum,
                          const float* gradient, uint16_t* out, int64_t i, int64_t count) {
  HWY_ALIGN uint16_t random[8 * HWY_MAX_BYTES / sizeof(float)];
  for (; i + 8 * Lanes() <= count; i += 8 * Lanes()) {
    RandomBlocks(key, static_cast<uint64_t>(first + i) / 8, random);
    for (int64_t at = 0; at < 8 * Lanes(); at += Lanes()) {
      V value = hn::LoadU(D(), gradient + i + at);
      if (sum != nullptr) {
        value = hn::Add(Widen<ValueType::kBf16>(hn::LoadU(Half(), sum + i + at)), value);
      }
      const VBits up = hn::PromoteTo(Bits(), hn::LoadU(Half(), random + at));
      hn::StoreU(RoundBf16(value, up), Half(), out + i + at);
    }
  }
  return i;
}
#else
int64_t AddRoundedVectors(const RoundingKey&, int64_t, const uint16_t*, const float*, uint16_t*,
                          int64_t i, int64_t) {
  return i;
}
#endif

void AddRoundedTarget(const RoundingKey& key, int64_t first, const uint16_t* sum,
                      const float* gradient, uint16_t* out, int64_t count) {
  int64_t i = 0;
  const auto one_by_one = [&](int64_t end) {
    for (; i < end; ++i) {
      const auto position = static_cast<uint64_t>(first + i);
      const PhiloxBlock random = PhiloxAt(key.key, key.stream, position / 8);
      const float value =
          sum == nullptr ? gradient[i] : FromWire(ValueType::kBf16, sum[i]) + gradient[i];
      out[i] = RoundByChance(value, random, position);
    }
  };
  // Up to the first whole block of random numbers.
  one_by_one(std::min(count, (8 - first % 8) % 8));
  i = AddRoundedVectors(key, first, sum, gradient, out, i, count);
  one_by_one(count);
}

constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kParts = kDotLanes / kWidth;  // vectors in the sums of one dot product
static_assert(kParts * kWidth == kDotLanes, "a vector is a part of a dot product's sums");

// Dot products of row i of x with kRows rows of x, from row j on.
template <int kRows>
void Dots(const GramStep& step, int64_t i, int64_t j) {
  const D d;
  const float* const a = step.x + i * step.columns;
  V sums[kRows][kParts];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(d);
  }
  int64_t k = 0;
  for (; kVectors && k + kDotLanes <= step.columns; k += kDotLanes) {
    for (int64_t part = 0; part < kParts; ++part) {
      const V left = hn::LoadU(d, a + k + part * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const float* const b = step.x + (j + r) * step.columns;
        sums[r][part] = hn::MulAdd(left, hn::LoadU(d, b + k + part * kWidth), sums[r][part]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float* const b = step.x + (j + r) * step.columns;
    HWY_ALIGN float lanes[kDotLanes];
    for (int64_t part = 0; part < kParts; ++part) {
      hn::Store(sums[r][part], d, lanes + part * kWidth);
    }
    for (int64_t rest = k; rest < step.columns; ++rest) {
      float& lane = lanes[rest % kDotLanes];
      lane = std::fma(a[rest], b[rest], lane);
    }
    float dot = 0;
    for (const float lane : lanes) dot += lane;
    const float added = step.linear != 0 ? step.linear * a[j + r] : 0;
    step.out[i * step.rows + j + r] = std::fma(step.scale, dot, added);
  }
}

void GramTarget(const GramStep& step, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  for (int64_t i = begin; i < end; ++i) {
    int64_t j = 0;
    for (; j + kRows <= step.rows; j += kRows) Dots<kRows>(step, i, j);
    for (; j < step.rows; ++j) Dots<1>(step, i, j);
  }
}

// kRows rows of the result from `i` on, kTile vectors of columns from `j` on.
template <int kRows, int kTile>
void MixTile(const MixStep& step, int64_t i, int64_t j) {
  const D d;
  const V keep = hn::Set(d, step.keep);
  V values[kRows][kTile];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTile; ++v) {
      const float* const x = step.x + (i + r) * step.columns + j + v * kWidth;
      values[r][v] = hn::Mul(keep, hn::LoadU(d, x));
    }
  }
  for (int64_t k = 0; k < step.rows; ++k) {
    for (int v = 0; v < kTile; ++v) {
      const V x = hn::LoadU(d, step.x + k * step.columns + j + v * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const V weight = hn::Set(d, step.weights[(i + r) * step.rows + k]);
        values[r][v] = hn::MulAdd(weight, x, values[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTile; ++v) {
      hn::StoreU(values[r][v], d, step.out + (i + r) * step.columns + j + v * kWidth);
    }
  }
}

template <int kRows>
void MixRows(const MixStep& step, int64_t i) {
  constexpr int kTile = 2;
  int64_t j = 0;
  for (; kVectors && j + kTile * kWidth <= step.columns; j += kTile * kWidth) {
    MixTile<kRows, kTile>(step, i, j);
  }
  for (; kVectors && j + kWidth <= step.columns; j += kWidth) MixTile<kRows, 1>(step, i, j);
  for (; j < step.columns; ++j) {
    for (int64_t row = i; row < i + kRows; ++row) {
      float value = step.keep * step.x[row * step.columns + j];
      for (int64_t k = 0; k < step.rows; ++k) {
        value = std::fma(step.weights[row * step.rows + k], step.x[k * step.columns + j], value);
      }
      step.out[row * step.columns + j] = value;
    }
  }
}

void MixTarget(const MixStep& step, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  int64_t i = begin;
  for (; i + kRows <= end; i += kRows) MixRows<kRows>(step, i);
  for (; i < end; ++i) MixRows<1>(step, i);
}

// Four stores of 16 bytes are one line of 64: the processor writes it at once.
void StreamCopyTarget(void* to, const void* from, size_t bytes) {
  auto* const target = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  size_t done = 0;
#if RZ_VECTORS
  const hn::FixedTag<uint8_t, 16> d;
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (; done + 64 <= bytes; done += 64) {
      for (size_t at = done; at < done + 64; at += 16) {
        hn::Stream(hn::LoadU(d, source + at), d, target + at);
      }
    }
    hwy::FlushStream();  // streaming stores are ordered by nothing else
  }
#endif
  std::memcpy(target + done, source + done, bytes - done);
}

const char* NameTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ringzero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringzero {

HWY_EXPORT(UpdateTarget);
HWY_EXPORT(AddTarget);
HWY_EXPORT(SquaresTarget);
HWY_EXPORT(WidenTarget);
HWY_EXPORT(NarrowTarget);
HWY_EXPORT(AddNarrowTarget);
HWY_EXPORT(AddRoundedTarget);
HWY_EXPORT(GramTarget);
HWY_EXPORT(MixTarget);
HWY_EXPORT(StreamCopyTarget);
HWY_EXPORT(NameTarget);

void UpdatePass(const UpdateStep& step, const UpdateSpan& span) {
  HWY_DYNAMIC_DISPATCH(UpdateTarget)(step, span);
}
void AddPass(float* sum, const float* gradient, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddTarget)(sum, gradient, count);
}
void SquaresPass(const float* values, int64_t count, double* lanes) {
  HWY_DYNAMIC_DISPATCH(SquaresTarget)(values, count, lanes);
}
void WidenPass(ValueType type, const uint16_t* values, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(WidenTarget)(type, values, out, count);
}
void NarrowPass(ValueType type, const float* values, uint16_t* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(NarrowTarget)(type, values, out, count);
}
void AddNarrowPass(ValueType type, float* sum, const uint16_t* values, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddNarrowTarget)(type, sum, values, count);
}
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddRoundedTarget)(key, first, sum, gradient, out, count);
}
void GramPass(const GramStep& step, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GramTarget)(step, begin, end);
}
void MixPass(const MixStep& step, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MixTarget)(step, begin, end);
}
double FoldLanes(const double* lanes) {
  double sum = 0;
  for (int64_t lane = 0; lane < kSquareLanes; ++lane) sum += lanes[lane];
  return sum;
}
void StreamCopy(void* to, const void* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(StreamCopyTarget)(to, from, bytes);
}
const char* KernelTarget() { return HWY_DYNAMIC_DISPATCH(NameTarget)(); }

}  // namespace ringzero
#endif
