// Dataflow: does every operation work on what its name says?
//
//   RZ_RETURN_IF_ERROR(CheckDataflow(plan, ring));
//
// A part of Verify. Operations and messages are known to be complete and to match by name; what is
// checked here is what the links join: each read the right version and copy, each sum exactly the
// gradients of the micro-batches before it, in order, and so on. Every check is local (an operation
// and what it takes from), so by induction each gradient is in its sum exactly once.
#ifndef RINGZERO_SHARDING_DATAFLOW_H_
#define RINGZERO_SHARDING_DATAFLOW_H_

#include "absl/status/status.h"
#include "sharding/linked_ring.h"
#include "sharding/plan.h"

namespace ringzero {

// FailedPrecondition naming worker, line and operation.
absl::Status CheckDataflow(const Plan& plan, const LinkedRing& ring);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_DATAFLOW_H_
