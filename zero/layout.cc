// Lays parameters, sums and statistics out at multiples of 64 bytes.
#include "zero/layout.h"

#include <utility>

#include "base/buffer.h"

namespace ringzero {
namespace {

int64_t Place(int64_t* end, int64_t bytes) {
  const int64_t offset = *end;
  *end = static_cast<int64_t>(AlignPayload(static_cast<size_t>(offset + bytes)));
  return offset;
}

}  // namespace

StageLayout StageLayout::Make(std::vector<ParameterSpec> parameters,
                              std::vector<StatisticSpec> statistics, const Precision& precision) {
  StageLayout layout{.parameter_type = precision.wire(), .sum_type = precision.sums};
  for (ParameterSpec& parameter : parameters) {
    parameter.numel = 1;
    for (const int64_t extent : parameter.shape) parameter.numel *= extent;
    parameter.offset_bytes =
        Place(&layout.parameter_bytes, parameter.numel * SizeOf(precision.wire()));
    parameter.master_offset_bytes = parameter.offset_bytes;
    if (precision.wire() != ValueType::kFp32) {
      parameter.master_offset_bytes =
          Place(&layout.master_bytes, parameter.numel * SizeOf(ValueType::kFp32));
    }
    if (parameter.trainable) {
      parameter.sum_offset_bytes =
          Place(&layout.sum_bytes, parameter.numel * SizeOf(precision.sums));
      parameter.sum_index = layout.trainable_count++;
    }
  }
  layout.trailer_offset_bytes = layout.sum_bytes;
  if (layout.trainable_count > 0) Place(&layout.sum_bytes, (layout.trainable_count + 7) / 8);
  for (StatisticSpec& statistic : statistics) {
    const bool count = statistic.kind == StatisticSpec::Kind::kCount;
    const int64_t bytes = count ? static_cast<int64_t>(sizeof(int64_t))
                                : statistic.numel * static_cast<int64_t>(sizeof(float));
    statistic.offset_bytes = Place(&layout.statistics_bytes, bytes);
  }
  layout.parameters = std::move(parameters);
  layout.statistics = std::move(statistics);
  return layout;
}

}  // namespace ringzero
