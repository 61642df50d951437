// Squares in fixed blocks, and their fold.
#include "zero/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "zero/gradient_sum.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/parameter_update.h"

namespace ringzero {
namespace {

constexpr double kTorchEpsilon = 1e-6;

}  // namespace

double SquaresOf(const StageLayout& layout, const ParameterSpec& spec, const std::byte* sum,
                 int64_t begin, int64_t end) {
  double lanes[kSquareLanes] = {};
  ForSumValues(layout, spec, sum, begin, end, [&lanes](const float* values, int64_t, int64_t run) {
    SquaresPass(values, run, lanes);
  });
  return FoldLanes(lanes);
}

SumSquares::SumSquares(const StageLayout& layout, const std::byte* sum, std::byte* copy)
    : layout_(layout),
      sum_(sum),
      copy_(copy),
      values_(static_cast<size_t>(layout.trainable_count), 0.0) {}

bool SumSquares::Step() {
  const auto has_block = [this] {
    const ParameterSpec& spec = layout_.parameters[parameter_];
    return spec.trainable && HasContribution(layout_, sum_, spec.sum_index) && begin_ < spec.numel;
  };
  while (parameter_ < layout_.parameters.size() && !has_block()) {
    ++parameter_;
    begin_ = 0;
  }
  if (parameter_ == layout_.parameters.size()) {
    if (copy_ == nullptr) return false;
    std::memcpy(copy_ + layout_.trailer_offset_bytes, sum_ + layout_.trailer_offset_bytes,
                static_cast<size_t>(layout_.sum_bytes - layout_.trailer_offset_bytes));
    return false;
  }
  const ParameterSpec& spec = layout_.parameters[parameter_];
  const int64_t count = std::min(kUpdateBlockValues, spec.numel - begin_);
  values_[static_cast<size_t>(spec.sum_index)] +=
      SquaresOf(layout_, spec, sum_, begin_, begin_ + count);
  if (copy_ != nullptr) {
    const int64_t value = SizeOf(layout_.sum_type), offset = spec.sum_offset_bytes + begin_ * value;
    // The block is in a cache by now; its copy is not read before the norm is known.
    StreamCopy(copy_ + offset, sum_ + offset, static_cast<size_t>(count * value));
  }
  begin_ += count;
  return true;
}

double NormOf(const std::vector<std::span<const double>>& stages, double divisor) {
  double squares = 0;
  for (const std::span<const double> stage : stages) {
    for (const double parameter : stage) squares += parameter;
  }
  return std::sqrt(squares) / divisor;
}

float ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double factor = max_norm / (norm + kTorchEpsilon);
  return factor >= 1 ? 1 : static_cast<float>(factor);
}

}  // namespace ringzero
