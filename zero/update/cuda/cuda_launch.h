// Queues kernels: all that nvcc compiles, with nothing of Abseil or of CUDA's headers between it
// and the rest. For cuda_kernels.cc alone. Counts are at least 1.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_

#include "zero/update/kernels.h"

namespace ringzero::cuda {

// Each gives a cudaError_t. `stream` is a cudaStream_t.
int LaunchSgd(const SgdStep& step, const UpdateSpan& span, void* stream);
int LaunchAdam(const AdamStep& step, const UpdateSpan& span, void* stream);
int LaunchLion(const LionStep& step, const UpdateSpan& span, void* stream);
int LaunchAdagrad(const AdagradStep& step, const UpdateSpan& span, void* stream);
int LaunchAdd(float* sum, const float* gradient, int64_t count, void* stream);
int LaunchSquares(const float* values, int64_t count, int64_t block, double* lanes, void* stream);
// Whether the current device has code of these kernels.
int FindKernels();

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_LAUNCH_H_
