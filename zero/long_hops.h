// LongHopsOf: what a transport with one lane for all long hops must know of the plan.
//
//   LaneRoutes routes{…, .long_hops = lane, .order = LongHopsOf(plan, self)};
//
// Verify can check this order (Merging::kLongHops); only tests ask it to.
#ifndef RINGZERO_ZERO_LONG_HOPS_H_
#define RINGZERO_ZERO_LONG_HOPS_H_

#include "base/ids.h"
#include "p2p/nccl/lane_transport.h"
#include "sharding/plan.h"

namespace ringzero {

// Of those that `self` takes part in.
LongHopOrder LongHopsOf(const Plan& plan, WorkerId self);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_LONG_HOPS_H_
