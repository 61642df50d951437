// PlanTimes: how long an iteration of a plan will take here, and why.
//
//   RZ_ASSIGN_OR_RETURN(PlanTimes times, PredictTimes({.config = config, …}));
//   std::cout << times.text;
//
// From a measured profile, or from FLOPs and bytes. Uses torch.
#ifndef RINGZERO_INTEGRATIONS_CLI_PLAN_TIMES_H_
#define RINGZERO_INTEGRATIONS_CLI_PLAN_TIMES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/profile_file.h"
#include "sharding/cost_profile.h"
#include "zero/config/config.h"

namespace ringzero {

struct PlanTimesRequest {
  const Config& config;
  const PlannedRun& run;
  const std::optional<SavedProfile>& profile;
  std::string profile_path;
  int hosts = 1;
};

struct PlanTimes {
  SimulationOptions speed;  // nanoseconds, cores shared
  std::string text;         // where the times come from, and what they lead to
};

// InvalidArgument if the profile is of another run.
absl::StatusOr<PlanTimes> PredictTimes(const PlanTimesRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PLAN_TIMES_H_
