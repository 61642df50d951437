// What is needed to stream states (StagePlan::streamed_bytes): a tier file, and where they lie in it.
//
//   const TierLayout layout = LayOutTier(plan, self, layouts, optimizer, tier.least_values);
//   layout.bytes;                     // of the file of worker `self`
//   layout.groups[layout.group_of(StageId(3))].pieces[0].extents;
//
// Each state of a parameter is one run of the file, from a whole page on. All but OpenTier is pure.
#ifndef RINGZERO_ZERO_STATE_TIER_H_
#define RINGZERO_ZERO_STATE_TIER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "offload/io_engine.h"
#include "offload/state_store.h"
#include "offload/tier_file.h"
#include "sharding/plan.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {

struct TierOptions {
  int file = -1;  // of LayOutTier's bytes, open as long as the engine lives
  std::string file_name;
  std::unique_ptr<IoEngine> io;
  // The file as memory: where states are collected, saved, or come from a checkpoint, and where
  // masters stream.
  std::byte* mapped = nullptr;
  // Smaller parameters stay in memory: a read of so few bytes costs as much as one of many.
  int64_t least_values = kUpdateBlockValues;
};

struct OpenedTier {
  std::optional<TierFile> file;  // none: nothing streams at this worker
  TierOptions options;
  std::vector<std::string> notes;  // for the user: what the folder or the system does not give
};
// A file of so many bytes in `folder`. Errors of TierFile::Create and MakeIoEngine.
absl::StatusOr<OpenedTier> OpenTier(const std::string& folder, int64_t bytes,
                                    const IoEngineOptions& io);

struct TierLayout {
  std::vector<StoreGroup> groups;
  std::map<StageId, int> group_of;                    // stages that this worker updates
  std::map<StageId, std::vector<StatePiece>> pieces;  // as in the group
  int64_t bytes = 0;
  int64_t piece_bytes = 0;  // of the largest, in memory
};
TierLayout LayOutTier(const Plan& plan, WorkerId self, const std::vector<StageLayout>& layouts,
                      const OptimizerOptions& optimizer, int64_t least_values = kUpdateBlockValues);
// Puts a stage that this worker updates behind those that are there; `name`: in errors; `masters`:
// they stream, too.
void AddStage(StageId stage, std::string name, const StageLayout& stage_layout,
              const OptimizerOptions& optimizer, bool masters, int64_t least_values,
              TierLayout& layout);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_STATE_TIER_H_
