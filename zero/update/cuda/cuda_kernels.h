// The passes of kernels.h over the memory of a GPU, in the order of a stream.
//
//   RZ_RETURN_IF_ERROR(cuda::Available());
//   RZ_RETURN_IF_ERROR(cuda::AdamPass({.divisor = 8, .keep = …}, span, {stream}));   // span: on
//   the GPU
//
// The bits are those of the processor's passes: the same operations in the same order, whatever the
// GPU and the size of its grid. All pointers must be readable by the calling thread's current
// device; spans do not overlap, but `out` may be `theta`.
//
// A call queues its pass and returns: what it reads and writes is the stream's until it has run. A
// Status tells of the queueing (Unavailable: no GPU or no driver; FailedPrecondition: a GPU that
// nothing was compiled for; InvalidArgument; Internal: all else, an earlier failure of this device
// too). Thread-safe.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_KERNELS_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "zero/update/kernels.h"

namespace ringzero::cuda {

// A cudaStream_t, or null for the default stream.
struct Stream {
  void* handle = nullptr;
};

// OK if the current device can run the passes.
absl::Status Available();

absl::Status SgdPass(const SgdStep& step, const UpdateSpan& span, Stream stream);
absl::Status AdamPass(const AdamStep& step, const UpdateSpan& span, Stream stream);
absl::Status LionPass(const LionStep& step, const UpdateSpan& span, Stream stream);
absl::Status AdagradPass(const AdagradStep& step, const UpdateSpan& span, Stream stream);

// sum[i] += gradient[i]. fp32.
struct AddSpan {
  float* sum = nullptr;
  const float* gradient = nullptr;
  int64_t count = 0;
};
absl::Status AddPass(const AddSpan& span, Stream stream);

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
absl::Status SquaresPass(const SquaresSpan& span, Stream stream);

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_KERNELS_H_
