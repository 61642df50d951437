// Checks what is asked for, queues it, and says what CUDA said.
#include "zero/update/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "zero/update/cuda/cuda_launch.h"

namespace ringzero::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return absl::StatusCode::kOk;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver: return absl::StatusCode::kUnavailable;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return absl::StatusCode::kFailedPrecondition;
    default: return absl::StatusCode::kInternal;
  }
}

absl::Status StatusOf(int error, const char* what) {
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaSuccess) return absl::OkStatus();
  return {CodeOf(code), absl::StrCat("cuda::", what, ": ", cudaGetErrorString(code))};
}

absl::Status CheckCount(int64_t count, const char* what) {
  if (count >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cuda::", what, ": count is ", count, ", it must be 0 or more"));
}

// launch() for a count above 0.
template <class Launch>
absl::Status Queue(int64_t count, const char* what, const Launch& launch) {
  if (count <= 0) return CheckCount(count, what);
  return StatusOf(launch(), what);
}

}  // namespace

absl::Status Available() { return StatusOf(FindKernels(), "Available"); }

absl::Status SgdPass(const SgdStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "SgdPass", [&] { return LaunchSgd(step, span, stream.handle); });
}
absl::Status AdamPass(const AdamStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "AdamPass", [&] { return LaunchAdam(step, span, stream.handle); });
}
absl::Status LionPass(const LionStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "LionPass", [&] { return LaunchLion(step, span, stream.handle); });
}
absl::Status AdagradPass(const AdagradStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "AdagradPass", [&] { return LaunchAdagrad(step, span, stream.handle); });
}
absl::Status AddPass(const AddSpan& span, Stream stream) {
  return Queue(span.count, "AddPass",
               [&] { return LaunchAdd(span.sum, span.gradient, span.count, stream.handle); });
}
absl::Status SquaresPass(const SquaresSpan& span, Stream stream) {
  if (span.block <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda::SquaresPass: block is ", span.block, ", it must be 1 or more"));
  }
  return Queue(span.count, "SquaresPass", [&] {
    return LaunchSquares(span.values, span.count, span.block, span.lanes, stream.handle);
  });
}

}  // namespace ringzero::cuda
