// OpenTier: the tier file of a worker whose states stream, as the configuration says. JudgeTier:
// whether a run will wait for it.
//
//   RZ_ASSIGN_OR_RETURN(OpenedTier tier, OpenTier(config, planned, self));
//   engine_options.tier = std::move(tier.options);
#ifndef RINGZERO_ZERO_CONFIG_TIER_H_
#define RINGZERO_ZERO_CONFIG_TIER_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "sharding/study/disk_verdict.h"
#include "sharding/study/simulate.h"
#include "zero/config/config.h"
#include "zero/model_plan.h"
#include "zero/state_tier.h"

namespace ringzero {

// InvalidArgument names the key and the folder.
absl::StatusOr<OpenedTier> OpenTier(const Config& config, const PlannedModel& planned,
                                    WorkerId self);

struct TierVerdict {
  DiskVerdict verdict;
  std::string text;  // DescribeDisk
};

// Whether a step waits for the disk of nvme_path: by a probe of a second and a half, on a file as
// OpenTier makes it, and by a simulation with `speed` (nanoseconds), which gets the disk. The
// errors of OpenTier, and of the disk.
absl::StatusOr<TierVerdict> JudgeTier(const Config& config, const PlannedModel& planned,
                                      SimulationOptions& speed);
// InvalidArgument: a step would wait, and cyclic.offload.require_hidden refuses such a run.
absl::Status CheckHidden(const Config& config, const TierVerdict& tier);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_TIER_H_
