// The kernels: a thread for each value, for each lane of a block's squares, or for each block of
// random numbers.
#include <cuda_runtime.h>

#include "zero/optimizer/cuda/cuda_kernels.h"

namespace ringzero::cuda {
namespace {

constexpr int kThreads = 256;

template <class Span>
__global__ void __launch_bounds__(kThreads) Kernel(Span span) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < span.work()) span.Do(i);
}

}  // namespace

// The error of this launch, which no later call then returns. A grid may have 2^31 - 1 blocks of
// threads: 2 TiB of fp32.
template <class Span>
int Launch(const Span& span, Stream stream) {
  Span copy = span;
  void* parameters[] = {&copy};
  const dim3 grid(static_cast<unsigned>((span.work() + kThreads - 1) / kThreads));
  const cudaError_t error = cudaLaunchKernel(
      reinterpret_cast<const void*>(Kernel<Span>), grid, dim3(kThreads), parameters,
      /*sharedMem=*/0, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

template int Launch(const UpdateWork<SgdStep>&, Stream);
template int Launch(const UpdateWork<AdamStep>&, Stream);
template int Launch(const UpdateWork<LionStep>&, Stream);
template int Launch(const UpdateWork<AdagradStep>&, Stream);
template int Launch(const UpdateWork<LambStep>&, Stream);
template int Launch(const UpdateWork<MuonStep>&, Stream);
template int Launch(const UpdateWork<MoveStep>&, Stream);
template int Launch(const AddSpan&, Stream);
template int Launch(const SquaresSpan&, Stream);
template int Launch(const WidenSpan&, Stream);
template int Launch(const NarrowSpan&, Stream);
template int Launch(const AddNarrowSpan&, Stream);
template int Launch(const AddRoundedSpan&, Stream);

int FindKernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(Kernel<AddSpan>));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace ringzero::cuda
