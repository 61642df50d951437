// What the passes on a GPU read and write; UpdateSpan, with addresses there, for updates.
//
//   const cuda::AddSpan span{.sum = sum, .gradient = gradient, .count = n};
//
// Values; all addresses are the GPU's. Each pass gives the bits of the processor's of that name.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_SPANS_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_SPANS_H_

#include <cstdint>

#include "zero/update/kernels.h"
#include "zero/update/narrow_kernels.h"

namespace ringzero::cuda {

// A cudaStream_t, or null for the default stream.
struct Stream {
  void* handle = nullptr;
};

// sum[i] += gradient[i]. fp32.
struct AddSpan {
  float* sum = nullptr;
  const float* gradient = nullptr;
  int64_t count = 0;
};

// Blocks of values, each with kSquareLanes lanes of its own: lanes[b][j] += the squares of those
// values of block b whose number within the block is j modulo kSquareLanes, in double, in rising
// order. So each row of lanes is what the processor's SquaresPass makes of that block. A lane is
// one thread's: blocks of 64 Ki values (a StageOptimizer's) keep a GPU busy, a single one does not.
struct SquaresSpan {
  const float* values = nullptr;
  int64_t count = 0;
  int64_t block = 64 * 1024;  // values; the last block may be shorter
  double* lanes = nullptr;    // [ceil(count / block)][kSquareLanes]
};

// out[i] = values[i], exactly. `type` is not kNone, here and below.
struct WidenSpan {
  WireType type = WireType::kBf16;
  const uint16_t* values = nullptr;
  float* out = nullptr;
  int64_t count = 0;
};

// out[i] = values[i], rounded to nearest, ties to even; NaN stays NaN.
struct NarrowSpan {
  WireType type = WireType::kBf16;
  const float* values = nullptr;
  uint16_t* out = nullptr;
  int64_t count = 0;
};

// sum[i] += gradient[i], in fp32.
struct AddNarrowSpan {
  WireType type = WireType::kBf16;
  float* sum = nullptr;
  const uint16_t* gradient = nullptr;
  int64_t count = 0;
};

// out[i] = fp32(sum[i]) + gradient[i], rounded to bf16 by chance (AddRoundedPass in
// narrow_kernels.h). `out` may be `sum`; null `sum`: the gradient alone.
struct AddRoundedSpan {
  RoundingKey key;
  int64_t first = 0;  // position of value 0 in its parameter, below 2^35
  const uint16_t* sum = nullptr;
  const float* gradient = nullptr;
  uint16_t* out = nullptr;
  int64_t count = 0;
};

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_SPANS_H_
