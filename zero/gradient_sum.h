// The arithmetic of a travelling gradient sum: the first contribution is a copy, later ones add.
//
//   AddContribution(layout, p, {gradient}, {.seed = 1, .iteration = t, .micro_batch = m}, sum);
//
// A sum that travels in bf16 is rounded stochastically at each contribution, the first one too, so
// that what is small against the sum is not lost on the average.
// A sum holds the gradients of a stage's trainable parameters (StageLayout::sum_offset_bytes) and a
// trailer with one bit for each: whether any micro-batch of the iteration has contributed to it.
#ifndef RINGZERO_ZERO_GRADIENT_SUM_H_
#define RINGZERO_ZERO_GRADIENT_SUM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "zero/layout.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {

// Clears the trailer: no contributions yet. The values may hold anything.
void StartSum(const StageLayout& layout, std::byte* sum);

// A micro-batch's gradient of one parameter: numel values in its own storage order.
struct GradientValues {
  const void* data = nullptr;
  ValueType type = ValueType::kFp32;
};
// What random numbers depend on, besides the parameter's name and the value's place in it.
struct SumRounding {
  uint64_t seed = 0;
  int iteration = 0;
  int micro_batch = 0;  // within the iteration
};

// Adds the values for one trainable parameter: copies them if its bit is not set, and sets it. In
// fp32, to which 16-bit gradients are widened; `rounding` is for sums that are not fp32.
void AddContribution(const StageLayout& layout, int parameter, const GradientValues& gradient,
                     const SumRounding& rounding, std::byte* sum);

// The average that a sum stands for, in the same layout: each value divided once by `divisor`, in
// fp32, and rounded to nearest where the sum is not; the trailer as it is. What has no contribution
// is left unspecified.
void AverageSum(const StageLayout& layout, const std::byte* sum, float divisor, std::byte* average);

// For tests: the first value of the first parameter with a contribution becomes infinite, if there
// is one.
void Overflow(const StageLayout& layout, std::byte* sum);

// Calls visit(values, offset, count) for the values [begin, end) of a parameter in a sum, in order
// and as fp32: all at once where the sum is, else in runs of 4096, widened on the stack. `offset`
// counts from `begin`.
template <class Visit>
void ForSumValues(const StageLayout& layout, const ParameterSpec& spec, const std::byte* sum,
                  int64_t begin, int64_t end, const Visit& visit) {
  const std::byte* values = sum + spec.sum_offset_bytes;
  if (layout.sum_type == ValueType::kFp32) {
    return visit(reinterpret_cast<const float*>(values) + begin, int64_t{0}, end - begin);
  }
  constexpr int64_t kRun = 4096;
  alignas(64) float wide[kRun];
  for (int64_t at = begin; at < end; at += kRun) {
    const int64_t count = std::min(kRun, end - at);
    WidenPass(layout.sum_type, reinterpret_cast<const uint16_t*>(values) + at, wide, count);
    visit(static_cast<const float*>(wide), at - begin, count);
  }
}

// The bit of the `sum_index`-th trainable parameter.
bool HasContribution(const StageLayout& layout, const std::byte* sum, int sum_index);
// For who writes a contribution by itself.
void MarkContribution(const StageLayout& layout, int sum_index, std::byte* sum);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_GRADIENT_SUM_H_
