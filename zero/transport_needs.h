// What the plan asks of a worker's transport: memory for the blocks that others reach.
#ifndef RINGZERO_ZERO_TRANSPORT_NEEDS_H_
#define RINGZERO_ZERO_TRANSPORT_NEEDS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

// One buffer of so many bytes as an arena counts it (TransportOptions).
size_t ArenaBytes(int64_t bytes);

// Memory for `self`; on_failure is left to the caller. Errors of BlockTable.
absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan, WorkerId self, int metrics_count);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_TRANSPORT_NEEDS_H_
