// ChooseFreeWindow: the credit of a channel whose slots hold no bytes.
//
//   RZ_ASSIGN_OR_RETURN(plan.window, ChooseFreeWindow(plan));
//
// A message over shm or local is a token: its payload stays in its sender's memory. More slots cost
// nothing there, and with too few a message that comes early holds up those behind it.
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
