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

// launch() for a count above 0.
template <class Launch>
absl::Status Queue(int64_t count, const char* what, const Launch& launch) {
  if (count > 0) return StatusOf(launch(), what);
  if (count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cuda::", what, ": count is ", count, ", it must be 0 or more"));
}

}  // namespace

absl::Status Available() { return StatusOf(FindKernels(), "Available"); }

absl::Status SgdPass(const SgdStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "SgdPass", [&] { return LaunchSgd(step, span, stream); });
}
absl::Status AdamPass(const AdamStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "AdamPass", [&] { return LaunchAdam(step, span, stream); });
}
absl::Status LionPass(const LionStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "LionPass", [&] { return LaunchLion(step, span, stream); });
}
absl::Status AdagradPass(const AdagradStep& step, const UpdateSpan& span, Stream stream) {
  return Queue(span.count, "AdagradPass", [&] { return LaunchAdagrad(step, span, stream); });
}
absl::Status AddPass(const AddSpan& span, Stream stream) {
  return Queue(span.count, "AddPass", [&] { return LaunchAdd(span, stream); });
}
absl::Status SquaresPass(const SquaresSpan& span, Stream stream) {
  if (span.block <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda::SquaresPass: block is ", span.block, ", it must be 1 or more"));
  }
  return Queue(span.count, "SquaresPass", [&] { return LaunchSquares(span, stream); });
}
absl::Status WidenPass(const WidenSpan& span, Stream stream) {
  return Queue(span.count, "WidenPass", [&] { return LaunchWiden(span, stream); });
}
absl::Status NarrowPass(const NarrowSpan& span, Stream stream) {
  return Queue(span.count, "NarrowPass", [&] { return LaunchNarrow(span, stream); });
}
absl::Status AddNarrowPass(const AddNarrowSpan& span, Stream stream) {
  return Queue(span.count, "AddNarrowPass", [&] { return LaunchAddNarrow(span, stream); });
}
absl::Status AddRoundedPass(const AddRoundedSpan& span, Stream stream) {
  return Queue(span.count, "AddRoundedPass", [&] { return LaunchAddRounded(span, stream); });
}

}  // namespace ringzero::cuda
