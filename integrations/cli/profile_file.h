// A CostProfile as a file: JSON, measured once and read by later plans.
//
//   RZ_RETURN_IF_ERROR(WriteProfile("gpt.profile.json", {profile, /*frozen=*/false}));
//   RZ_ASSIGN_OR_RETURN(SavedProfile saved, ReadProfile("gpt.profile.json"));
//   RZ_RETURN_IF_ERROR(CheckProfile(saved, config, model));
#ifndef RINGZERO_INTEGRATIONS_CLI_PROFILE_FILE_H_
#define RINGZERO_INTEGRATIONS_CLI_PROFILE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/cost_profile.h"
#include "zero/config/config.h"
#include "zero/model_plan.h"

namespace ringzero {

struct SavedProfile {
  CostProfile profile;
  bool frozen = false;  // its costs may make a plan (cyclic.profile)
};

// Whole or not at all.
absl::Status WriteProfile(const std::string& path, const SavedProfile& saved);
// NotFound; InvalidArgument that says what is wrong with which entry. Both name the path.
absl::StatusOr<SavedProfile> ReadProfile(const std::string& path);

// InvalidArgument if it was measured for other layers, another micro-batch or other threads.
absl::Status CheckProfile(const SavedProfile& saved, const Config& config,
                          const ModelDescription& model);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PROFILE_FILE_H_
