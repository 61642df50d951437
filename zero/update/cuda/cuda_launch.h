// Queues kernels: all that nvcc compiles, with nothing of Abseil or of CUDA's headers between it
// and the rest. For cuda_kernels.cc alone. Counts are at least 1.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_

#include "zero/update/cuda/cuda_spans.h"

namespace ringzero::cuda {

// Each gives a cudaError_t.
int LaunchSgd(const SgdStep& step, const UpdateSpan& span, Stream stream);
int LaunchAdam(const AdamStep& step, const UpdateSpan& span, Stream stream);
int LaunchLion(const LionStep& step, const UpdateSpan& span, Stream stream);
int LaunchAdagrad(const AdagradStep& step, const UpdateSpan& span, Stream stream);
int LaunchAdd(const AddSpan& span, Stream stream);
int LaunchSquares(const SquaresSpan& span, Stream stream);
int LaunchWiden(const WidenSpan& span, Stream stream);
int LaunchNarrow(const NarrowSpan& span, Stream stream);
int LaunchAddNarrow(const AddNarrowSpan& span, Stream stream);
int LaunchAddRounded(const AddRoundedSpan& span, Stream stream);
// Whether the current device has code of these kernels.
int FindKernels();

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_
