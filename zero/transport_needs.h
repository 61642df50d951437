// What the plan asks of a worker's transport: memory for the blocks that others reach.
// Sums over the block table; pure functions.
//
//   RZ_ASSIGN_OR_RETURN(const TransportOptions needs, TransportNeeds(plan, WorkerId(2), metrics));
//   RZ_ASSIGN_OR_RETURN(const int64_t bytes, PoolBytes({.plan = plan, .self = WorkerId(2)}));
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

// How payload gets to another worker.
enum class PoolKind {
  kHandles,   // threads of one process: nothing moves
  kShared,    // processes that map each other's memory (shm)
  kReceived,  // into memory of the receiver's own (ucx, nccl)
};

struct PoolRequest {
  const Plan& plan;
  WorkerId self{0};
  int metrics_count = 1;
  PoolKind kind = PoolKind::kShared;
};

// Memory for messages and for what is on its way, beyond what the forecast counts: slots,
// statistics, metrics, gaps between blocks, rings of words; and what is kept for collections.
// Errors of MakeProgram.
absl::StatusOr<int64_t> PoolBytes(const PoolRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_TRANSPORT_NEEDS_H_
