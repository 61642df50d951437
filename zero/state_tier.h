// For states that stream (StagePlan::streamed_bytes): a tier file, and where states lie in it.
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
#include <string>
#include <utility>
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
  // Of LayOutTier's bytes. None: states are not looked at between updates (collections, saves,
  // resumes, masters).
  std::shared_ptr<const TierFile> file;
  std::shared_ptr<const TierFile> versions;  // of LayOutVersions' bytes (version_files.h)
  std::string folder;
  std::string file_name;
  std::unique_ptr<IoEngine> io;
  // Smaller parameters stay in memory: a read of so few bytes costs as much as one of many.
  int64_t least_values = kUpdateBlockValues;
};

struct OpenedTier {
  TierOptions options;             // without an engine: nothing streams at this worker
  std::vector<std::string> notes;  // for the user: what the folder or the system does not give
};
// A file of so many bytes in `folder`, and one for versions; none of no bytes. Errors of
// TierFile::Create and MakeIoEngine.
absl::StatusOr<OpenedTier> OpenTier(const std::string& folder, int64_t bytes, int64_t version_bytes,
                                    const IoEngineOptions& io);

// Behind the head stages begin at multiples of so many bytes: what one checksum of a file is of
// (integrations/checkpoint/tensor_file_writer.h).
inline constexpr int64_t kTierStageBytes = 1 << 20;

struct TierLayout {
  std::vector<StoreGroup> groups;
  std::map<StageId, int> group_of;                    // stages that this worker updates
  std::map<StageId, std::vector<StatePiece>> pieces;  // as in the group
  int64_t head_bytes = 0;  // of the file: room for a head of safetensors (Leave in streams.h)
  int64_t bytes = 0;
  int64_t piece_bytes = 0;  // of the largest, in memory
  // Of a stage that streams: where it begins in the file, and where the next one does.
  std::pair<int64_t, int64_t> RunOf(StageId stage) const;
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
