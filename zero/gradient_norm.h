// The norm of a gradient, and what it is clipped by.
//
//   SumSquares squares(layout, sum, copy);            // block by block, between adds
//   while (squares.Step()) {}
//   const double norm = NormOf({&squares.values(), …}, N * K);
//   update.clip = ClipFactor(norm, max_norm);         // gradient = sum / divisor · clip
//
// All in double, in an order that does not depend on how the model is cut or on who owns what: a
// parameter's squares in blocks counted from its own start, each in kSquareLanes lanes; blocks,
// then parameters in model order, one after the other.
#ifndef RINGZERO_ZERO_GRADIENT_NORM_H_
#define RINGZERO_ZERO_GRADIENT_NORM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zero/layout.h"

namespace ringzero {

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

#endif  // RINGZERO_ZERO_GRADIENT_NORM_H_
