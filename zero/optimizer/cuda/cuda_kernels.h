// The passes of kernels.h over the memory of a GPU, in the order of a stream.
//
//   RZ_RETURN_IF_ERROR(cuda::Available());
//   RZ_RETURN_IF_ERROR(cuda::UpdatePass(AdamStep{.divisor = 8, …}, span_on_the_gpu, {stream}));
//   RZ_RETURN_IF_ERROR(cuda::Pass(cuda::AddSpan{.sum = …}, {stream}));
//
// The bits are those of the processor's passes: the same operations in the same order, whatever the
// GPU and the size of its grid. All pointers must be readable by the calling thread's current
// device; spans do not overlap, but `out` may be `theta`.
//
// A call queues its pass and returns: what it reads and writes is the stream's until it has run. A
// Status tells of the queueing (Unavailable: no GPU or no driver; FailedPrecondition: a GPU that
// nothing was compiled for; InvalidArgument; Internal: all else, an earlier failure of this device
// too). Thread-safe.
//
// All spans are values, and say what one thread makes of them. The processor's compiler takes that
// text, too, so that it is tested without a GPU. For C++17.
#ifndef RINGZERO_ZERO_OPTIMIZER_CUDA_CUDA_KERNELS_H_
#define RINGZERO_ZERO_OPTIMIZER_CUDA_CUDA_KERNELS_H_

#include <cstdint>

#ifndef __CUDACC__  // nvcc takes nothing of Abseil
#include "absl/status/status.h"
#endif
#include "base/philox.h"
#include "zero/optimizer/arithmetic.h"
#include "zero/optimizer/formulas.h"
#include "zero/optimizer/kernels.h"

namespace ringzero::cuda {

// A cudaStream_t, or null for the default stream.
struct Stream {
  void* handle = nullptr;
};

// UpdatePass by one kind of step.
template <class Step>
struct UpdateWork {
  Step step;
  UpdateSpan span;
  int64_t count = 0;  // the span's

  static constexpr const char* kName = "UpdatePass";
  RZ_BOTH_SIDES int64_t work() const { return count; }
  RZ_BOTH_SIDES void Do(int64_t i) const { plain::UpdateValue(step, span, i); }
};

// sum[i] += gradient[i]. fp32.
struct AddSpan {
  float* sum = nullptr;
  const float* gradient = nullptr;
  int64_t count = 0;

  static constexpr const char* kName = "AddPass";
  RZ_BOTH_SIDES int64_t work() const { return count; }
  RZ_BOTH_SIDES void Do(int64_t i) const { sum[i] += gradient[i]; }
};

// Blocks of values, each with kSquareLanes lanes of its own: lanes[b][j] += the squares of those
// values of block b whose number within the block is j modulo kSquareLanes, in double, in rising
// order. So each row of lanes is what the processor's SquaresPass makes of that block. A lane is
// one thread's: blocks of 64 Ki values (a StageOptimizer's) keep a GPU busy, a single one does not.
struct SquaresSpan {
  const float* values = nullptr;
  int64_t count = 0;
  int64_t block = 64 * 1024;  // values; the last block may be shorter
  double* lanes = nullptr;    // [ceil(count / block)][kSquareLanes]

  static constexpr const char* kName = "SquaresPass";
  // Lanes of all blocks together.
  RZ_BOTH_SIDES int64_t work() const { return (count + block - 1) / block * kSquareLanes; }
  RZ_BOTH_SIDES void Do(int64_t lane) const {
    const int64_t begin = lane / kSquareLanes * block;
    const int64_t end = block < count - begin ? begin + block : count;
    double sum = lanes[lane];
    for (int64_t i = begin + lane % kSquareLanes; i < end; i += kSquareLanes) {
      const double value = values[i];
      sum += value * value;
    }
    lanes[lane] = sum;
  }
};

// out[i] = values[i], exactly. `type` is not kFp32, here and below.
struct WidenSpan {
  ValueType type = ValueType::kBf16;
  const uint16_t* values = nullptr;
  float* out = nullptr;
  int64_t count = 0;

  static constexpr const char* kName = "WidenPass";
  RZ_BOTH_SIDES int64_t work() const { return count; }
  RZ_BOTH_SIDES void Do(int64_t i) const { out[i] = FromWire(type, values[i]); }
};

// out[i] = values[i], rounded to nearest, ties to even; NaN stays NaN.
struct NarrowSpan {
  ValueType type = ValueType::kBf16;
  const float* values = nullptr;
  uint16_t* out = nullptr;
  int64_t count = 0;

  static constexpr const char* kName = "NarrowPass";
  RZ_BOTH_SIDES int64_t work() const { return count; }
  RZ_BOTH_SIDES void Do(int64_t i) const { out[i] = ToWire(type, values[i]); }
};

// sum[i] += gradient[i], in fp32.
struct AddNarrowSpan {
  ValueType type = ValueType::kBf16;
  float* sum = nullptr;
  const uint16_t* gradient = nullptr;
  int64_t count = 0;

  static constexpr const char* kName = "AddNarrowPass";
  RZ_BOTH_SIDES int64_t work() const { return count; }
  RZ_BOTH_SIDES void Do(int64_t i) const { sum[i] += FromWire(type, gradient[i]); }
};

// out[i] = fp32(sum[i]) + gradient[i], rounded to bf16 by chance (AddRoundedPass in
// kernels.h). `out` may be `sum`; null `sum`: the gradient alone.
struct AddRoundedSpan {
  RoundingKey key;
  int64_t first = 0;  // position of value 0 in its parameter, below 2^35
  const uint16_t* sum = nullptr;
  const float* gradient = nullptr;
  uint16_t* out = nullptr;
  int64_t count = 0;

  static constexpr const char* kName = "AddRoundedPass";
  // Blocks of random numbers, of 8 positions each.
  RZ_BOTH_SIDES int64_t work() const { return (first + count + 7) / 8 - first / 8; }
  RZ_BOTH_SIDES void Do(int64_t n) const {
    const int64_t block = first / 8 + n;
    const PhiloxBlock random = PhiloxAt(key.key, key.stream, static_cast<uint64_t>(block));
    for (int at = 0; at < 8; ++at) {
      const int64_t i = block * 8 + at - first;
      if (i < 0 || i >= count) continue;
      const float before = sum == nullptr ? 0 : FromWire(ValueType::kBf16, sum[i]);
      const float value = sum == nullptr ? gradient[i] : before + gradient[i];
      out[i] = RoundByChance(value, random, static_cast<uint64_t>(at));
    }
  }
};

#ifndef __CUDACC__
// OK if the current device can run the passes.
absl::Status Available();

absl::Status UpdatePass(const UpdateStep& step, const UpdateSpan& span, Stream stream);
// Span: AddSpan, SquaresSpan, WidenSpan, NarrowSpan, AddNarrowSpan or AddRoundedSpan.
template <class Span>
absl::Status Pass(const Span& span, Stream stream);

#endif

// For cuda_kernels.cc alone: queues the kernel of one of these, with at least one piece of work,
// and gives a cudaError_t. All that nvcc compiles, with nothing of Abseil between it and the rest.
template <class Span>
int Launch(const Span& span, Stream stream);
// Whether the current device has code of these kernels.
int FindKernels();

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_OPTIMIZER_CUDA_CUDA_KERNELS_H_
