// The arithmetic of a travelling gradient sum: the first contribution is a copy, later ones add.
// Then the norm of a complete one, and what it is clipped by.
//
//   AddContribution(layout, p, {gradient}, {.seed = 1, .iteration = t, .micro_batch = m}, sum);
//
//   SumSquares squares(layout, sum, copy);            // block by block, between adds
//   while (squares.Step()) {}
//   const double norm = NormOf({&squares.values(), …}, N * K);
//   update.clip = ClipFactor(norm, max_norm);         // gradient = sum / divisor · clip
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
#include <span>
#include <vector>

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

// Calls visit(values, offset, count) for all values, in order and as fp32: at once where they are,
// else in runs of 4096, widened on the stack.
template <class Visit>
void ForValues(ValueType type, const void* values, int64_t count, const Visit& visit) {
  if (type == ValueType::kFp32) return visit(static_cast<const float*>(values), int64_t{0}, count);
  constexpr int64_t kRun = 4096;
  alignas(64) float wide[kRun];
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t run = std::min(kRun, count - at);
    WidenPass(type, static_cast<const uint16_t*>(values) + at, wide, run);
    visit(static_cast<const float*>(wide), at, run);
  }
}
// For the values [begin, end) of a parameter in a sum; `offset` counts from `begin`.
template <class Visit>
void ForSumValues(const StageLayout& layout, const ParameterSpec& spec, const std::byte* sum,
                  int64_t begin, int64_t end, const Visit& visit) {
  const std::byte* values = sum + spec.sum_offset_bytes + begin * SizeOf(layout.sum_type);
  ForValues(layout.sum_type, values, end - begin, visit);
}

// The bit of the `sum_index`-th trainable parameter.
bool HasContribution(const StageLayout& layout, const std::byte* sum, int sum_index);
// For who writes a contribution by itself.
void MarkContribution(const StageLayout& layout, int sum_index, std::byte* sum);

// Squares and norms are in double, in an order that does not depend on how the model is cut or on
// who owns what: a parameter's squares in blocks counted from its own start, each in kSquareLanes
// lanes; blocks, then parameters in model order, one after the other.

// Of the values [begin, end) of a parameter in a sum, in lanes.
double SquaresOf(const StageLayout& layout, const ParameterSpec& spec, const std::byte* sum,
                 int64_t begin, int64_t end);

// The squares of the values of a complete sum, undivided, and a copy of it if asked for.
class SumSquares {
 public:
  // `copy`: of layout.sum_bytes; null: none. Layout and memory must outlive this.
  SumSquares(const StageLayout& layout, const std::byte* sum, std::byte* copy);
  // One block; false when that was the last.
  bool Step();
  // By trainable parameter, in the layout's order; 0 without a gradient.
  const std::vector<double>& values() const { return values_; }

 private:
  const StageLayout& layout_;
  const std::byte* const sum_;
  std::byte* const copy_;
  size_t parameter_ = 0;
  int64_t begin_ = 0;  // of the next block, in elements
  std::vector<double> values_;
};

// Of the averaged gradient: `stages` are squares of stages in model order.
double NormOf(const std::vector<std::span<const double>>& stages, double divisor);

// What torch.nn.utils.clip_grad_norm_ scales by (and DeepSpeed, by 1 / clamp((norm + 1e-6) / max,
// min=1)): max_norm / (norm + 1e-6) if that is below 1, computed in double and rounded once. NaN of
// a NaN, 0 of an infinite norm. max_norm 0: 1.
float ClipFactor(double norm, double max_norm);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_GRADIENT_SUM_H_
