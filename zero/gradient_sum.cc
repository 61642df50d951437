// Copies the first contribution to a sum and adds the others.
#include "zero/gradient_sum.h"

#include <cstring>

#include "zero/stream_copy.h"
#include "zero/update/kernels.h"

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
    return AddPass(values, gradient, spec.numel);
  }
  StreamCopy(values, gradient, static_cast<size_t>(spec.numel) * sizeof(float));
  MarkContribution(layout, spec.sum_index, sum);
}

void MarkContribution(const StageLayout& layout, int sum_index, std::byte* sum) {
  sum[layout.trailer_offset_bytes + sum_index / 8] |= std::byte{1} << (sum_index % 8);
}

void AverageSum(const StageLayout& layout, const std::byte* sum, int divisor, std::byte* average) {
  std::memcpy(average + layout.trailer_offset_bytes, sum + layout.trailer_offset_bytes,
              static_cast<size_t>(layout.sum_bytes - layout.trailer_offset_bytes));
  for (const ParameterSpec& spec : layout.parameters) {
    if (!spec.trainable || !HasContribution(layout, sum, spec.sum_index)) continue;
    const float* from = reinterpret_cast<const float*>(sum + spec.sum_offset_bytes);
    float* to = reinterpret_cast<float*>(average + spec.sum_offset_bytes);
    for (int64_t i = 0; i < spec.numel; ++i) to[i] = from[i] / static_cast<float>(divisor);
  }
}

}  // namespace ringzero
