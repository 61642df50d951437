// Running statistics: a micro-batch's batch statistics folded into the travelling ones.
#ifndef RINGZERO_ZERO_RUNNING_STATISTICS_H_
#define RINGZERO_ZERO_RUNNING_STATISTICS_H_

#include <cstddef>

#include "zero/layout.h"

namespace ringzero {

// running = (1 - blend)·running + blend·batch for kBlend (in double, rounded once), running + 1 for
// kCount. Both in the layout's statistics form, layout.statistics_bytes long.
void ApplyStatistics(const StageLayout& layout, const std::byte* batch, std::byte* running);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_RUNNING_STATISTICS_H_
