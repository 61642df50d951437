// PoolBytes: memory for messages and for what is on its way, beyond what the forecast counts: slots,
// statistics, metrics, gaps between blocks, rings of words; and what is kept for collections.
//
//   RZ_ASSIGN_OR_RETURN(const int64_t bytes, PoolBytes({.plan = plan, .self = WorkerId(2)}));
//
// Sums over the block table. Pure.
#ifndef RINGZERO_ZERO_POOL_MEMORY_H_
#define RINGZERO_ZERO_POOL_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "sharding/plan.h"

namespace ringzero {

// How payload gets to another worker.
enum class PoolKind {
  kNone,      // nothing travels
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

// Errors of MakeProgram.
absl::StatusOr<int64_t> PoolBytes(const PoolRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_POOL_MEMORY_H_
