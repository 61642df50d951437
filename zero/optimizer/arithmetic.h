// Arithmetic on one float, for a processor and for a GPU: each operation rounds once, to nearest.
//
//   Scalar::MulAdd(a, b, c);                    // a · b + c, rounded once
//   FromWire(ValueType::kBf16, ToWire(ValueType::kBf16, value));
//
// Both compilers contract nothing (-ffp-contract=off, -fmad=false) and flush nothing to zero.
// Written in C++17: the standard that CMake 3.25 gives nvcc.
#ifndef RINGZERO_ZERO_OPTIMIZER_ARITHMETIC_H_
#define RINGZERO_ZERO_OPTIMIZER_ARITHMETIC_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/philox.h"
#include "zero/optimizer/kernels.h"

#ifdef __CUDACC__
#define RZ_BOTH_SIDES __host__ __device__ inline
#else
#define RZ_BOTH_SIDES inline
#endif

namespace ringzero {

RZ_BOTH_SIDES uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
RZ_BOTH_SIDES float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A value type for formulas.h (its M): one float.
struct Scalar {
  using V = float;
  static RZ_BOTH_SIDES V Set(float value) { return value; }
  static RZ_BOTH_SIDES V Add(V a, V b) { return a + b; }
  static RZ_BOTH_SIDES V Sub(V a, V b) { return a - b; }
  static RZ_BOTH_SIDES V Mul(V a, V b) { return a * b; }
  static RZ_BOTH_SIDES V Div(V a, V b) { return a / b; }
  static RZ_BOTH_SIDES V Sqrt(V a) { return std::sqrt(a); }
  static RZ_BOTH_SIDES V MulAdd(V a, V b, V c) { return std::fma(a, b, c); }
  static RZ_BOTH_SIDES V NegMulAdd(V a, V b, V c) { return std::fma(-a, b, c); }
  static RZ_BOTH_SIDES V CopySign(V size, V sign) {
    return FloatOf((BitsOf(size) & 0x7fffffff) | (BitsOf(sign) & 0x80000000));
  }
  // `yes` if |a| >= least, otherwise `no`. A NaN gives `no`.
  static RZ_BOTH_SIDES V IfAtLeast(V a, V least, V yes, V no) {
    return a >= least || -a >= least ? yes : no;
  }
};

// To bf16: adds `up` to the fp32 bits, then drops the lower 16; a NaN stays a NaN. The hardware's
// conversions are not used: they differ in what they make of a NaN.
RZ_BOTH_SIDES uint16_t RoundToBf16(float value, uint32_t up) {
  const uint32_t bits = BitsOf(value);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : (bits + up) >> 16);
}

// Rounds by the random number of `position` in the parameter: half a word of `block` (kernels.h).
RZ_BOTH_SIDES uint16_t RoundByChance(float value, const PhiloxBlock& block, uint64_t position) {
  return RoundToBf16(value, block[position % 8 / 2] >> (position % 2 * 16) & 0xffff);
}

RZ_BOTH_SIDES uint16_t ToFp16(float value) {
  const uint32_t bits = BitsOf(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
  uint32_t half;
  if (size >= 0x47800000) {  // from 65536 on: infinite, or a NaN
    half = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  } else if (size < 0x38800000) {  // below 2^-14 values are 2^-24 apart, as fp32's are at 0.5
    half = BitsOf(FloatOf(size) + 0.5f) - BitsOf(0.5f);
  } else {  // the exponent's bias is 15 instead of 127, and 13 bits of the mantissa are dropped
    const uint32_t rebased = size - ((127u - 15u) << 23);
    half = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

// To nearest, ties to even.
RZ_BOTH_SIDES uint16_t ToWire(ValueType type, float value) {
  if (type != ValueType::kBf16) return ToFp16(value);
  return RoundToBf16(value, 0x7fff + (BitsOf(value) >> 16 & 1));
}

RZ_BOTH_SIDES float FromWire(ValueType type, uint16_t value) {
  if (type == ValueType::kBf16) return FloatOf(uint32_t{value} << 16);
  const uint32_t sign = (value & 0x8000u) << 16, size = value & 0x7fffu;
  uint32_t bits;
  if (size < 0x400) {  // below 2^-14 values are 2^-24 apart
    bits = BitsOf(static_cast<float>(size) * (1.0f / (1 << 24)));
  } else if (size < 0x7c00) {
    bits = (size << 13) + ((127u - 15u) << 23);
  } else {  // infinity, NaN
    bits = 0x7f800000 | (size << 13);
  }
  return FloatOf(sign | bits);
}

// Value i of what `span` predicts, after an update from `theta` to `out`.
RZ_BOTH_SIDES void StorePredicted(const UpdateSpan& span, int64_t i, float theta, float out) {
  const float value = Scalar::MulAdd(span.factor, Scalar::Sub(out, theta), out);
  if (span.wire_type == ValueType::kFp32) {
    static_cast<float*>(span.predicted)[i] = value;
  } else {
    static_cast<uint16_t*>(span.predicted)[i] = ToWire(span.wire_type, value);
  }
}

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_ARITHMETIC_H_
