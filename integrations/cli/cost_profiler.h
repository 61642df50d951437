// MeasureCosts: what a configuration's layers take here, by training a few iterations.
//
//   RZ_ASSIGN_OR_RETURN(CostProfile profile, MeasureCosts(config, *data, length));
//
// As many workers as the run has, but no more than there are cores: those that compute at the same
// time share caches and memory, so that one alone would look too fast. They are processes, as in
// the run itself, with a stage for each layer. To be called before this process uses torch
// (integrations/torch/run_workers.h).
#ifndef RINGZERO_INTEGRATIONS_CLI_COST_PROFILER_H_
#define RINGZERO_INTEGRATIONS_CLI_COST_PROFILER_H_

#include "absl/status/statusor.h"
#include "integrations/cli/run_setup.h"
#include "integrations/data/dataset.h"
#include "sharding/cost_profile.h"
#include "zero/config/config.h"

namespace ringzero {

// Says on stderr what it does. Errors of RunWorkers.
absl::StatusOr<CostProfile> MeasureCosts(const Config& config, const Dataset& data,
                                         const RunLength& length);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_COST_PROFILER_H_
