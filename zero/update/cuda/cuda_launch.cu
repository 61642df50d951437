// The kernels: a thread for each value, or for each lane of a block's squares.
#include <cuda_runtime.h>

#include "zero/update/cuda/cuda_formulas.h"
#include "zero/update/cuda/cuda_launch.h"

namespace ringzero::cuda {
namespace {

constexpr int kThreads = 256;

// The number of this thread, and how many blocks of threads `count` of them are. A grid may have
// 2^31 - 1 blocks: 2 TiB of fp32.
__device__ int64_t ThreadIndex() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
dim3 BlocksFor(int64_t count) {
  return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads));
}

__global__ void __launch_bounds__(kThreads) SgdKernel(SgdStep step, UpdateSpan span) {
  const int64_t i = ThreadIndex();
  if (i < span.count) SgdValue(step, span, i);
}

__global__ void __launch_bounds__(kThreads) AdamKernel(AdamStep step, UpdateSpan span) {
  const int64_t i = ThreadIndex();
  if (i < span.count) AdamValue(step, span, i);
}

__global__ void __launch_bounds__(kThreads) LionKernel(LionStep step, UpdateSpan span) {
  const int64_t i = ThreadIndex();
  if (i < span.count) LionValue(step, span, i);
}

__global__ void __launch_bounds__(kThreads) AdagradKernel(AdagradStep step, UpdateSpan span) {
  const int64_t i = ThreadIndex();
  if (i < span.count) AdagradValue(step, span, i);
}

__global__ void __launch_bounds__(kThreads)
    AddKernel(float* sum, const float* gradient, int64_t count) {
  const int64_t i = ThreadIndex();
  if (i < count) sum[i] = Add(sum[i], gradient[i]);
}

__global__ void __launch_bounds__(kThreads)
    SquaresKernel(const float* values, int64_t count, int64_t block, double* lanes) {
  const int64_t begin = ThreadIndex() / kSquareLanes * block;
  if (begin >= count) return;
  const int64_t own = block < count - begin ? block : count - begin;
  double& lane = lanes[ThreadIndex()];
  lane = SquaresLane(values + begin, own, ThreadIndex() % kSquareLanes, lane);
}

// The error of this launch, which is then nobody else's.
template <class... Parameters>
int Launch(void (*kernel)(Parameters...), int64_t threads, void* stream, Parameters... parameters) {
  void* pointers[] = {&parameters...};
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), BlocksFor(threads), dim3(kThreads),
                       pointers, /*sharedMem=*/0, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace

int LaunchSgd(const SgdStep& step, const UpdateSpan& span, void* stream) {
  return Launch(SgdKernel, span.count, stream, step, span);
}
int LaunchAdam(const AdamStep& step, const UpdateSpan& span, void* stream) {
  return Launch(AdamKernel, span.count, stream, step, span);
}
int LaunchLion(const LionStep& step, const UpdateSpan& span, void* stream) {
  return Launch(LionKernel, span.count, stream, step, span);
}
int LaunchAdagrad(const AdagradStep& step, const UpdateSpan& span, void* stream) {
  return Launch(AdagradKernel, span.count, stream, step, span);
}
int LaunchAdd(float* sum, const float* gradient, int64_t count, void* stream) {
  return Launch(AddKernel, count, stream, sum, gradient, count);
}
int LaunchSquares(const float* values, int64_t count, int64_t block, double* lanes, void* stream) {
  const int64_t blocks = (count + block - 1) / block;
  return Launch(SquaresKernel, blocks * kSquareLanes, stream, values, count, block, lanes);
}

int FindKernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(AddKernel));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace ringzero::cuda
