// The kernels: a thread for each value, for each lane of a block's squares, or for each block of
// random numbers.
#include <cuda_runtime.h>

#include "zero/update/cuda/cuda_formulas.h"
#include "zero/update/cuda/cuda_launch.h"

namespace ringzero::cuda {
namespace {

constexpr int kThreads = 256;

template <class Step, void (*kValue)(const Step&, const UpdateSpan&, int64_t)>
__global__ void __launch_bounds__(kThreads) UpdateKernel(Step step, UpdateSpan span) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < span.count) kValue(step, span, i);
}

// `work` pieces, each by kPiece.
template <class Span, void (*kPiece)(const Span&, int64_t)>
__global__ void __launch_bounds__(kThreads) SpanKernel(Span span, int64_t work) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < work) kPiece(span, i);
}

// The error of this launch, which is then nobody else's. A grid may have 2^31 - 1 blocks of
// threads: 2 TiB of fp32.
template <class... Parameters>
int Launch(void (*kernel)(Parameters...), int64_t threads, Stream stream,
           Parameters... parameters) {
  void* pointers[] = {&parameters...};
  const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(kThreads), pointers,
                       /*sharedMem=*/0, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

template <class Step, void (*kValue)(const Step&, const UpdateSpan&, int64_t)>
int LaunchUpdate(const Step& step, const UpdateSpan& span, Stream stream) {
  return Launch(UpdateKernel<Step, kValue>, span.count, stream, step, span);
}

template <class Span, void (*kPiece)(const Span&, int64_t)>
int LaunchSpan(const Span& span, int64_t work, Stream stream) {
  return Launch(SpanKernel<Span, kPiece>, work, stream, span, work);
}

}  // namespace

int LaunchSgd(const SgdStep& step, const UpdateSpan& span, Stream stream) {
  return LaunchUpdate<SgdStep, SgdValue>(step, span, stream);
}
int LaunchAdam(const AdamStep& step, const UpdateSpan& span, Stream stream) {
  return LaunchUpdate<AdamStep, AdamValue>(step, span, stream);
}
int LaunchLion(const LionStep& step, const UpdateSpan& span, Stream stream) {
  return LaunchUpdate<LionStep, LionValue>(step, span, stream);
}
int LaunchAdagrad(const AdagradStep& step, const UpdateSpan& span, Stream stream) {
  return LaunchUpdate<AdagradStep, AdagradValue>(step, span, stream);
}
int LaunchAdd(const AddSpan& span, Stream stream) {
  return LaunchSpan<AddSpan, AddValue>(span, span.count, stream);
}
int LaunchSquares(const SquaresSpan& span, Stream stream) {
  return LaunchSpan<SquaresSpan, SquaresLane>(span, SquaresLanes(span), stream);
}
int LaunchWiden(const WidenSpan& span, Stream stream) {
  return LaunchSpan<WidenSpan, WidenValue>(span, span.count, stream);
}
int LaunchNarrow(const NarrowSpan& span, Stream stream) {
  return LaunchSpan<NarrowSpan, NarrowValue>(span, span.count, stream);
}
int LaunchAddNarrow(const AddNarrowSpan& span, Stream stream) {
  return LaunchSpan<AddNarrowSpan, AddNarrowValue>(span, span.count, stream);
}
int LaunchAddRounded(const AddRoundedSpan& span, Stream stream) {
  return LaunchSpan<AddRoundedSpan, AddRoundedBlock>(span, RandomBlocks(span), stream);
}

int FindKernels() {
  cudaFuncAttributes attributes;
  const auto* kernel = reinterpret_cast<const void*>(SpanKernel<AddSpan, AddValue>);
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace ringzero::cuda
