// Copies the first contribution to a sum and adds the others.
#include "zero/gradient_sum.h"

#include <cstring>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace ringzero {
namespace {

// Into a sum in bf16.
void AddRounded(const ParameterSpec& spec, const GradientValues& gradient,
                const SumRounding& rounding, bool first, uint16_t* sum) {
  const RoundingKey key{.key = MixKeys({rounding.seed, HashName("sum"), HashName(spec.name)}),
                        .stream = (static_cast<uint64_t>(rounding.iteration) << 32) |
                                  static_cast<uint32_t>(rounding.micro_batch)};
  constexpr int64_t kRun = 4096;
  alignas(64) float wide[kRun];
  for (int64_t at = 0; at < spec.numel; at += kRun) {
    const int64_t count = std::min(kRun, spec.numel - at);
    const float* values = static_cast<const float*>(gradient.data) + at;
    if (gradient.type != ValueType::kFp32) {
      WidenPass(gradient.type, static_cast<const uint16_t*>(gradient.data) + at, wide, count);
      values = wide;
    }
    AddRoundedPass(key, at, first ? nullptr : sum + at, values, sum + at, count);
  }
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

}  // namespace ringzero
