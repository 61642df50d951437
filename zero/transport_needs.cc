// Sums over the block table.
#include "zero/transport_needs.h"

#include <vector>

#include "base/status.h"
#include "sharding/block_table.h"
#include "zero/block_memory.h"

namespace ringzero {

size_t ArenaBytes(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan, WorkerId self,
                                                int metrics_count) {
  TransportOptions options;
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
                      BlockTable(plan, self, {.metrics_count = metrics_count}));
  for (const OwnBlock& own : table) {
    if (own.access == Access::kPrivate) continue;
    const bool sums = UseOf(own.access) == MemoryUse::kSums;
    (sums ? options.sum_bytes : options.parameter_bytes) += ArenaBytes(own.bytes);
  }
  return options;
}

}  // namespace ringzero
