// Checks what is asked for, queues it, and says what CUDA said.
#include "zero/optimizer/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>

#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"

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

}  // namespace

absl::Status Available() { return StatusOf(FindKernels(), "Available"); }

template <class Span>
absl::Status Pass(const Span& span, Stream stream) {
  const auto wrong = [](const char* field, int64_t found, int least) {
    return InvalidArgument("cuda::", Span::kName, ": ", field, " is ", found, ", it must be ",
                           least, " or more");
  };
  if (span.count < 0) return wrong("count", span.count, 0);
  if constexpr (std::is_same_v<Span, SquaresSpan>) {
    if (span.block <= 0) return wrong("block", span.block, 1);
  }
  return span.count == 0 ? absl::OkStatus() : StatusOf(Launch(span, stream), Span::kName);
}

template absl::Status Pass(const AddSpan&, Stream);
template absl::Status Pass(const SquaresSpan&, Stream);
template absl::Status Pass(const WidenSpan&, Stream);
template absl::Status Pass(const NarrowSpan&, Stream);
template absl::Status Pass(const AddNarrowSpan&, Stream);
template absl::Status Pass(const AddRoundedSpan&, Stream);

absl::Status UpdatePass(const UpdateStep& step, const UpdateSpan& span, Stream stream) {
  return std::visit(
      [&](const auto& one) {
        using Step = std::decay_t<decltype(one)>;
        return Pass(UpdateWork<Step>{one, plain::SpanOf(one, span), span.count}, stream);
      },
      step);
}

}  // namespace ringzero::cuda
