// Beginning: what a run has that begins with a version f > 0 (Plan::first_iteration), besides θ_f.
//
//   EngineOptions options{.plan = plan, …};          // plan.first_iteration = 100
//   options.initialize = …;                          // fills θ_100
//   options.beginning.state = [&](StageId j, std::byte* state) { return file.Read(j, state); };
//
// With it the run has the bits of one that went on from iteration f - 1. Calls come from
// Engine::Create, in stage order, for stages that train and whose masters this worker has.
#ifndef RINGZERO_ZERO_BEGINNING_H_
#define RINGZERO_ZERO_BEGINNING_H_

#include <cstddef>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "base/ids.h"
#include "zero/loss_scale.h"

namespace ringzero {

struct Beginning {
  // Fills the optimizer's state after update f - 1, in StateLayout (zero/optimizer_state.h).
  std::function<absl::Status(StageId, std::byte* state)> state;
  // Fills what iteration f reads besides θ_f, as it travels: θ_{f-1}, or the predictions p_f and
  // p_{f+1} (FirstVersions in sharding/schedule.h). Rules without either never call it.
  std::function<absl::Status(StageId, Version label, std::byte* values)> version;
  double norm = 0;  // the gradient norm of iteration f - 1: Clipping::kPrevious clips by it
  std::optional<LossScale::History> loss_scale;  // where overflows are skipped
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_BEGINNING_H_
