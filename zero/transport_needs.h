// What the plan asks of a worker's transport: credit per channel and memory to allocate.
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

// Slots and memory for `self`, and what it receives at once (zero/received_needs.h); on_failure is
// left to the caller. Errors of MakeProgram.
absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan, WorkerId self, int metrics_count);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_TRANSPORT_NEEDS_H_
