// ChooseFreeWindow: slots of a channel with which messages hardly hold each other up.
//
//   RZ_ASSIGN_OR_RETURN(plan.window, ChooseFreeWindow(plan));
//
// With too few slots a message that comes early holds up those behind it. More of them take memory.
#ifndef RINGZERO_SHARDING_FREE_WINDOW_H_
#define RINGZERO_SHARDING_FREE_WINDOW_H_

#include "absl/status/statusor.h"
#include "sharding/plan.h"

namespace ringzero {

// The smallest window, but none below ChooseWindow's, whose step takes at most 1 % longer than one
// without a limit. A step is simulated with the plan's costs, so all workers choose the same one.
// plan.window > 0: itself. Errors of ChooseWindow. Pure.
absl::StatusOr<int> ChooseFreeWindow(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_FREE_WINDOW_H_
