// The passes for one value, as a GPU's thread computes them; the processor's compiler takes them
// too, so that a test without a GPU holds the same text against the plain loops (reference.h).
//
//   for (int64_t i = first; i < span.count; i += threads) cuda::AdamValue(step, span, i);
//
// Every operation rounds once, to nearest, in the order of the plain loops; nothing is contracted,
// nothing flushed to zero. For C++17: what CMake 3.25 gives nvcc.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "zero/update/kernels.h"

#ifdef __CUDACC__
#define RZ_BOTH_SIDES __host__ __device__ inline
#else
#define RZ_BOTH_SIDES inline
#endif

namespace ringzero::cuda {

#ifdef __CUDA_ARCH__
RZ_BOTH_SIDES float Add(float a, float b) { return __fadd_rn(a, b); }
RZ_BOTH_SIDES float Multiply(float a, float b) { return __fmul_rn(a, b); }
RZ_BOTH_SIDES float MultiplyAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
RZ_BOTH_SIDES float Divide(float a, float b) { return __fdiv_rn(a, b); }
RZ_BOTH_SIDES float Root(float a) { return __fsqrt_rn(a); }
RZ_BOTH_SIDES double AddSquare(double sum, double a) { return __dadd_rn(sum, __dmul_rn(a, a)); }
RZ_BOTH_SIDES uint32_t BitsOf(float a) { return __float_as_uint(a); }
RZ_BOTH_SIDES float FloatOf(uint32_t bits) { return __uint_as_float(bits); }
#else
RZ_BOTH_SIDES float Add(float a, float b) { return a + b; }
RZ_BOTH_SIDES float Multiply(float a, float b) { return a * b; }
RZ_BOTH_SIDES float MultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }
RZ_BOTH_SIDES float Divide(float a, float b) { return a / b; }
RZ_BOTH_SIDES float Root(float a) { return std::sqrt(a); }
RZ_BOTH_SIDES double AddSquare(double sum, double a) { return sum + a * a; }
RZ_BOTH_SIDES uint32_t BitsOf(float a) {
  uint32_t bits;
  std::memcpy(&bits, &a, sizeof(bits));
  return bits;
}
RZ_BOTH_SIDES float FloatOf(uint32_t bits) {
  float a;
  std::memcpy(&a, &bits, sizeof(a));
  return a;
}
#endif

// Without conversions of the hardware: what those make of a NaN differs.
RZ_BOTH_SIDES uint16_t ToBf16(float value) {
  const uint32_t bits = BitsOf(value), high = bits >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(nan ? high | 0x40 : (bits + 0x7fff + (high & 1)) >> 16);
}

RZ_BOTH_SIDES uint16_t ToFp16(float value) {
  const uint32_t bits = BitsOf(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
  uint32_t half;
  if (size >= 0x47800000) {  // from 65536 on: infinite, or a NaN
    half = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  } else if (size < 0x38800000) {  // below 2^-14 a step is 2^-24, as fp32's is at 0.5
    half = BitsOf(Add(FloatOf(size), 0.5f)) - BitsOf(0.5f);
  } else {  // the exponent's bias is 15 instead of 127, and 13 bits of the mantissa go
    const uint32_t rebased = size - ((127u - 15u) << 23);
    half = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

// The new value, in both forms.
RZ_BOTH_SIDES void Write(const UpdateSpan& span, int64_t i, float value) {
  span.out[i] = value;
  if (span.wire_type == WireType::kBf16) span.wire[i] = ToBf16(value);
  if (span.wire_type == WireType::kFp16) span.wire[i] = ToFp16(value);
}

// The clipped gradient from its sum, with a decay that belongs to it.
template <class Step>
RZ_BOTH_SIDES float GradientOf(const Step& step, float sum, float weight_decay, float theta) {
  const float g = Multiply(Divide(sum, step.divisor), step.clip);
  return weight_decay != 0 ? MultiplyAdd(weight_decay, theta, g) : g;
}

RZ_BOTH_SIDES void SgdValue(const SgdStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  if (step.has_momentum) {
    const float buffer =
        step.first_time ? g : MultiplyAdd(step.undamped, g, Multiply(span.first[i], step.momentum));
    span.first[i] = buffer;
    g = step.nesterov ? MultiplyAdd(step.momentum, buffer, g) : buffer;
  }
  Write(span, i, MultiplyAdd(-step.rate, g, theta));
}

RZ_BOTH_SIDES void AdamValue(const AdamStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  const float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  const float m = MultiplyAdd(step.one_minus_beta1, g, Multiply(span.first[i], step.beta1));
  const float v =
      MultiplyAdd(Multiply(step.one_minus_beta2, g), g, Multiply(span.second[i], step.beta2));
  span.first[i] = m;
  span.second[i] = v;
  const float denominator = Add(Divide(Root(v), step.root_correction2), step.epsilon);
  const float moved = Divide(Multiply(step.step_size, m), denominator);
  Write(span, i, Add(Multiply(theta, step.keep), -moved));
}

RZ_BOTH_SIDES void LionValue(const LionStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i], m = span.first[i];
  const float g = Multiply(Divide(span.sum[i], step.divisor), step.clip);
  const float direction = MultiplyAdd(step.one_minus_beta1, g, Multiply(m, step.beta1));
  // 0 and NaN stay themselves.
  const float moved = direction > 0 ? step.rate : direction < 0 ? -step.rate : direction;
  span.first[i] = MultiplyAdd(step.one_minus_beta2, g, Multiply(m, step.beta2));
  Write(span, i, Add(Multiply(theta, step.keep), -moved));
}

RZ_BOTH_SIDES void AdagradValue(const AdagradStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  const float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  const float squares = MultiplyAdd(g, g, span.first[i]);
  span.first[i] = squares;
  const float moved = Divide(Multiply(step.rate, g), Add(Root(squares), step.epsilon));
  Write(span, i, Add(theta, -moved));
}

// What `lane` of kSquareLanes takes of `count` values, added to `sum` one after the other.
RZ_BOTH_SIDES double SquaresLane(const float* values, int64_t count, int64_t lane, double sum) {
  for (int64_t i = lane; i < count; i += kSquareLanes) sum = AddSquare(sum, values[i]);
  return sum;
}

}  // namespace ringzero::cuda

#undef RZ_BOTH_SIDES

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_
