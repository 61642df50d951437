// Blends batch statistics into running ones.
#include "zero/running_statistics.h"

#include <cstdint>

namespace ringzero {

void ApplyStatistics(const StageLayout& layout, const std::byte* batch, std::byte* running) {
  for (const StatisticSpec& spec : layout.statistics) {
    if (spec.kind == StatisticSpec::Kind::kCount) {
      ++*reinterpret_cast<int64_t*>(running + spec.offset_bytes);
      continue;
    }
    const float* from = reinterpret_cast<const float*>(batch + spec.offset_bytes);
    float* to = reinterpret_cast<float*>(running + spec.offset_bytes);
    for (int64_t i = 0; i < spec.numel; ++i) {
      to[i] = static_cast<float>((1 - spec.blend) * double(to[i]) + spec.blend * double(from[i]));
    }
  }
}

}  // namespace ringzero
