// The passes of narrow_kernels.h, one value after the other.
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "zero/update/narrow_kernels.h"
#include "zero/update/reference.h"

namespace ringzero::reference {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float FromFp16(uint16_t value) {
  const uint32_t sign = uint32_t{value & 0x8000u} << 16, size = value & 0x7fff;
  // Below 2^-14 a step is 2^-24.
  const float magnitude = size < 0x400 ? std::ldexp(static_cast<float>(size), -24)
                          : size < 0x7c00
                              ? FromBits((size << 13) + ((127u - 15u) << 23))
                              : FromBits(0x7f800000 | ((size & 0x3ff) << 13));  // infinity, NaN
  uint32_t bits;
  std::memcpy(&bits, &magnitude, sizeof(bits));
  return FromBits(bits | sign);
}

uint16_t RandomBits(const RoundingKey& key, uint64_t position) {
  const PhiloxBlock block = PhiloxAt(key.key, key.stream, position / 8);
  return static_cast<uint16_t>(block[position % 8 / 2] >> (position % 2 * 16));
}

}  // namespace

float FromWire(WireType type, uint16_t value) {
  return type == WireType::kBf16 ? FromBits(uint32_t{value} << 16) : FromFp16(value);
}

void WidenPass(WireType type, const uint16_t* values, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = FromWire(type, values[i]);
}

void NarrowPass(WireType type, const float* values, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = ToWire(type, values[i]);
}

void AddNarrowPass(WireType type, float* sum, const uint16_t* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += FromWire(type, values[i]);
}

void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value =
        sum == nullptr ? gradient[i] : FromWire(WireType::kBf16, sum[i]) + gradient[i];
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint32_t random = RandomBits(key, static_cast<uint64_t>(first + i));
    out[i] = static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : (bits + random) >> 16);
  }
}

}  // namespace ringzero::reference
