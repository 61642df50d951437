// Copies the first contribution to a sum, adds the others, and folds squares in fixed blocks.
#include "zero/gradient_sum.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"
#include "zero/optimizer/parameter_update.h"

namespace ringzero {
namespace {

constexpr double kTorchEpsilon = 1e-6;  // of clip_grad_norm_

// Into a sum in bf16.
void AddRounded(const ParameterSpec& spec, const GradientValues& gradient,
                const SumRounding& rounding, bool first, uint16_t* sum) {
  const RoundingKey key{.key = MixKeys({rounding.seed, HashName("sum"), HashName(spec.name)}),
                        .stream = (static_cast<uint64_t>(rounding.iteration) << 32) |
                                  static_cast<uint32_t>(rounding.micro_batch)};
  ForValues(gradient.type, gradient.data, spec.numel,
            [&](const float* values, int64_t at, int64_t count) {
              AddRoundedPass(key, at, first ? nullptr : sum + at, values, sum + at, count);
            });
}

}  // namespace

void StartSum(const StageLayout& layout, std::byte* sum) {
  std::memset(sum + layout.trailer_offset_bytes, 0,
              static_cast<size_t>(layout.sum_bytes - layout.trailer_offset_bytes));
}

bool HasContribution(const StageLayout& layout, const std::byte* sum, int sum_index) {
  const std::byte byte = sum[layout.trailer_offset_bytes + sum_index / 8];
  return (byte & (std::byte{1} << (sum_index % 8))) != std::byte{0};
}

void AddContribution(const StageLayout& layout, int parameter, const GradientValues& gradient,
                     const SumRounding& rounding, std::byte* sum) {
  const ParameterSpec& spec = layout.parameters[parameter];
  const bool first = !HasContribution(layout, sum, spec.sum_index);
  MarkContribution(layout, spec.sum_index, sum);
  std::byte* to = sum + spec.sum_offset_bytes;
  if (layout.sum_type != ValueType::kFp32) {
    return AddRounded(spec, gradient, rounding, first, reinterpret_cast<uint16_t*>(to));
  }
  float* values = reinterpret_cast<float*>(to);
  if (gradient.type != ValueType::kFp32) {
    const auto* narrow = static_cast<const uint16_t*>(gradient.data);
    first ? WidenPass(gradient.type, narrow, values, spec.numel)
          : AddNarrowPass(gradient.type, values, narrow, spec.numel);
  } else if (first) {
    StreamCopy(values, gradient.data, static_cast<size_t>(spec.numel) * sizeof(float));
  } else {
    AddPass(values, static_cast<const float*>(gradient.data), spec.numel);
  }
}

void MarkContribution(const StageLayout& layout, int sum_index, std::byte* sum) {
  sum[layout.trailer_offset_bytes + sum_index / 8] |= std::byte{1} << (sum_index % 8);
}

void Overflow(const StageLayout& layout, std::byte* sum) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr uint16_t kInfiniteBf16 = 0x7f80;
  for (const ParameterSpec& spec : layout.parameters) {
    if (!spec.trainable || !HasContribution(layout, sum, spec.sum_index)) continue;
    if (layout.sum_type == ValueType::kFp32) {
      std::memcpy(sum + spec.sum_offset_bytes, &kInfinite, sizeof(kInfinite));
    } else {
      std::memcpy(sum + spec.sum_offset_bytes, &kInfiniteBf16, sizeof(kInfiniteBf16));
    }
    return;
  }
}

void AverageSum(const StageLayout& layout, const std::byte* sum, float divisor,
                std::byte* average) {
  std::memcpy(average + layout.trailer_offset_bytes, sum + layout.trailer_offset_bytes,
              static_cast<size_t>(layout.sum_bytes - layout.trailer_offset_bytes));
  for (const ParameterSpec& spec : layout.parameters) {
    if (!spec.trainable || !HasContribution(layout, sum, spec.sum_index)) continue;
    std::byte* to = average + spec.sum_offset_bytes;
    if (layout.sum_type == ValueType::kFp32) {
      const float* from = reinterpret_cast<const float*>(sum + spec.sum_offset_bytes);
      for (int64_t i = 0; i < spec.numel; ++i) reinterpret_cast<float*>(to)[i] = from[i] / divisor;
      continue;
    }
    ForSumValues(
        layout, spec, sum, 0, spec.numel, [&](const float* from, int64_t offset, int64_t count) {
          std::vector<float> wide(from, from + count);
          for (float& value : wide) value /= divisor;
          NarrowPass(layout.sum_type, wide.data(), reinterpret_cast<uint16_t*>(to) + offset, count);
        });
  }
}

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
