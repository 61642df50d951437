// Copies the first contribution to a sum and adds the others.
#include "zero/gradient_sum.h"

#include <cstring>

namespace ringzero {

void StartSum(const StageLayout& layout, std::byte* sum) {
  std::memset(sum + layout.trailer_offset_bytes, 0,
              static_cast<size_t>(layout.sum_bytes - layout.trailer_offset_bytes));
}

bool HasContribution(const StageLayout& layout, const std::byte* sum, int sum_index) {
  const std::byte byte = sum[layout.trailer_offset_bytes + sum_index / 8];
  return (byte & (std::byte{1} << (sum_index % 8))) != std::byte{0};
}

void AddContribution(const StageLayout& layout, int parameter, const float* gradient,
                     std::byte* sum) {
  const ParameterSpec& spec = layout.parameters[parameter];
  float* values = reinterpret_cast<float*>(sum + spec.sum_offset_bytes);
  if (HasContribution(layout, sum, spec.sum_index)) {
    for (int64_t i = 0; i < spec.numel; ++i) values[i] += gradient[i];
    return;
  }
  std::memcpy(values, gradient, static_cast<size_t>(spec.numel) * sizeof(float));
  sum[layout.trailer_offset_bytes + spec.sum_index / 8] |= std::byte{1} << (spec.sum_index % 8);
}

}  // namespace ringzero
