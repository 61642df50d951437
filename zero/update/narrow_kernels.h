// Narrow kernels: passes between fp32 and the 16-bit types that travel.
//
//   NarrowPass(WireType::kBf16, masters, version, n);      // to nearest, ties to even
//   AddNarrowPass(WireType::kBf16, sum, gradient, n);      // fp32 += bf16
//   AddRoundedPass({key, stream}, 0, sum, gradient, sum, n);   // bf16 += fp32, stochastically
//
// As the passes of kernels.h: each value once, the widest vectors that there are, and the bits of
// the plain loops in reference:: for every length, address and processor. 16-bit values are bits in
// a uint16_t. Thread-safe for spans that do not overlap.
#ifndef RINGZERO_ZERO_UPDATE_NARROW_KERNELS_H_
#define RINGZERO_ZERO_UPDATE_NARROW_KERNELS_H_

#include <cstdint>

#include "zero/update/kernels.h"

namespace ringzero {

// out[i] = values[i], exactly. `type` is not kNone, here and below.
void WidenPass(WireType type, const uint16_t* values, float* out, int64_t count);
// out[i] = values[i], rounded to nearest, ties to even; NaN stays NaN.
void NarrowPass(WireType type, const float* values, uint16_t* out, int64_t count);
// sum[i] += values[i], in fp32.
void AddNarrowPass(WireType type, float* sum, const uint16_t* values, int64_t count);

// Which random numbers round a parameter's values in one micro-batch (base/philox.h).
struct RoundingKey {
  uint64_t key = 0;
  uint64_t stream = 0;
};

// out[i] = fp32(sum[i]) + gradient[i], rounded to bf16: up with the probability of what truncation
// would drop. Null `sum`: the gradient alone is rounded. `first` is the position of value 0 in its
// parameter, below 2^35: 16 random bits for position p are half (p % 2) of word (p % 8) / 2 of
// block p / 8, so that blocks do not matter. Infinity and NaN stay. `out` may be `sum`.
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count);

namespace reference {

float FromWire(WireType type, uint16_t value);
void WidenPass(WireType type, const uint16_t* values, float* out, int64_t count);
void NarrowPass(WireType type, const float* values, uint16_t* out, int64_t count);
void AddNarrowPass(WireType type, float* sum, const uint16_t* values, int64_t count);
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count);

}  // namespace reference
}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_NARROW_KERNELS_H_
