// Arithmetic for both sides of a GPU: each operation rounds once, to nearest; nvcc contracts none
// of them, and nothing is flushed to zero.
//
//   cuda::MultiplyAdd(a, b, c);   // __fmaf_rn there, std::fma here
//
// For C++17: what CMake 3.25 gives nvcc.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_ARITHMETIC_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_ARITHMETIC_H_

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

RZ_BOTH_SIDES float CopySign(float size, float sign) {
  return FloatOf((BitsOf(size) & 0x7fffffff) | (BitsOf(sign) & 0x80000000));
}

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

RZ_BOTH_SIDES uint16_t ToWire(WireType type, float value) {
  return type == WireType::kBf16 ? ToBf16(value) : ToFp16(value);
}

RZ_BOTH_SIDES float FromWire(WireType type, uint16_t value) {
  if (type == WireType::kBf16) return FloatOf(uint32_t{value} << 16);
  const uint32_t sign = (value & 0x8000u) << 16, size = value & 0x7fffu;
  uint32_t bits;
  if (size < 0x400) {  // below 2^-14 a step is 2^-24
    bits = BitsOf(Multiply(static_cast<float>(size), 1.0f / (1 << 24)));
  } else if (size < 0x7c00) {
    bits = (size << 13) + ((127u - 15u) << 23);
  } else {  // infinity, NaN
    bits = 0x7f800000 | (size << 13);
  }
  return FloatOf(sign | bits);
}

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_ARITHMETIC_H_
