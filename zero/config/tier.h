// OpenTier: the tier file of a worker whose states stream, as the configuration says.
//
//   RZ_ASSIGN_OR_RETURN(OpenedTier tier, OpenTier(config, planned, self));
//   engine_options.tier = std::move(tier.options);      // tier.file outlives the engine
#ifndef RINGZERO_ZERO_CONFIG_TIER_H_
#define RINGZERO_ZERO_CONFIG_TIER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "offload/tier_file.h"
#include "sharding/study/simulate.h"
#include "zero/config/config.h"
#include "zero/model_plan.h"
#include "zero/state_tier.h"

namespace ringzero {

struct OpenedTier {
  std::optional<TierFile> file;  // none: nothing streams at this worker
  TierOptions options;
  std::vector<std::string> notes;  // for the user: what the folder or the system does not give
};

// InvalidArgument names the key and the folder.
absl::StatusOr<OpenedTier> OpenTier(const Config& config, const PlannedModel& planned,
                                    WorkerId self);

// The disk of nvme_path, by a probe of a second and a half on a file as OpenTier makes it: for
// `workers` of one host. Nanoseconds. The errors of OpenTier, and of the disk.
absl::StatusOr<DiskTicks> ProbeTier(const Config& config, const PlannedModel& planned, int workers);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_TIER_H_
