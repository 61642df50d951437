// The passes of kernels.h and narrow_kernels.h over the memory of a GPU, in the order of a stream.
//
//   RZ_RETURN_IF_ERROR(cuda::Available());
//   RZ_RETURN_IF_ERROR(cuda::AdamPass({.divisor = 8, .keep = …}, span_on_the_gpu, {stream}));
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

#include "absl/status/status.h"
#include "zero/update/cuda/cuda_spans.h"
#include "zero/update/kernels.h"

namespace ringzero::cuda {

// OK if the current device can run the passes.
absl::Status Available();

absl::Status SgdPass(const SgdStep& step, const UpdateSpan& span, Stream stream);
absl::Status AdamPass(const AdamStep& step, const UpdateSpan& span, Stream stream);
absl::Status LionPass(const LionStep& step, const UpdateSpan& span, Stream stream);
absl::Status AdagradPass(const AdagradStep& step, const UpdateSpan& span, Stream stream);

// cuda_spans.h says what each does.
absl::Status AddPass(const AddSpan& span, Stream stream);
absl::Status SquaresPass(const SquaresSpan& span, Stream stream);
absl::Status WidenPass(const WidenSpan& span, Stream stream);
absl::Status NarrowPass(const NarrowSpan& span, Stream stream);
absl::Status AddNarrowPass(const AddNarrowSpan& span, Stream stream);
absl::Status AddRoundedPass(const AddRoundedSpan& span, Stream stream);

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_KERNELS_H_
