// HeldCopies: is each copy that stays with a worker there for all its reads, and gone in time?
//
//   RZ_RETURN_IF_ERROR(CheckHeldCopies(plan, ring));
//
// A part of Verify, for ZeRO's stages 1 and 2 (Plan::holds_copies): of each held copy, who reads
// it, that its kRelease waits for all of them, and that nobody hands on its last part of a sum
// while it holds the version which the update will overwrite.
#ifndef RINGZERO_SHARDING_HELD_COPIES_H_
#define RINGZERO_SHARDING_HELD_COPIES_H_

#include "absl/status/status.h"
#include "sharding/linked_ring.h"
#include "sharding/plan.h"

namespace ringzero {

// FailedPrecondition naming worker, line and operation.
absl::Status CheckHeldCopies(const Plan& plan, const LinkedRing& ring);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_HELD_COPIES_H_
