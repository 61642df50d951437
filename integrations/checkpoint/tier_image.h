// The tier file of a worker as a file of a checkpoint: all states that stream, as safetensors.
//
// The states lie where updates have left them. Only the file's head is written. What fills the last
// page of a state is a tensor, too (".padding.2.4096"): the format allows no gaps. Masters that
// stream are "fc.weight.master" there; a checkpoint has them with the model besides.
#ifndef RINGZERO_INTEGRATIONS_CHECKPOINT_TIER_IMAGE_H_
#define RINGZERO_INTEGRATIONS_CHECKPOINT_TIER_IMAGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "offload/tier_file.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer_options.h"
#include "zero/saver.h"
#include "zero/state_tier.h"
#include "zero/streams.h"

namespace ringzero {

// An error says why states of `tier` are copied into a checkpoint in `folder`: a file of
// `tier_folder` cannot get a name there (tried), or values are not row by row.
absl::Status MayTakeTier(const TierLayout& tier, const std::vector<StageLayout>& layouts,
                         const std::string& tier_folder, const std::string& folder);

// Nobody writes the file any more. Gives it a head and the name, and makes it durable.
// `checksums`: by stage, ChecksumsOfPieces of its run. Returns ChecksumOfHead.
absl::StatusOr<std::string> LinkTier(const TierLayout& tier,
                                     const std::vector<StageLayout>& layouts,
                                     const OptimizerOptions& optimizer,
                                     const std::map<StageId, std::vector<uint64_t>>& checksums,
                                     const TierFile& file, const std::string& path);

// A saver's part in it: whether the states of a part are copied, or taken over with their file.
// With the first part of a version it is decided for all. One thread.
class TierTaker {
 public:
  // All of them must outlive this. `note`: why states are copied, once.
  TierTaker(const std::vector<StageLayout>& layouts, const OptimizerOptions& optimizer,
            const std::function<void(const std::string&)>& note)
      : layouts_(layouts), optimizer_(optimizer), note_(note) {}

  // What the part's states are left in; no file: they are copied. `folder`: of the checkpoint. For
  // all parts of a version, whatever happens to others: some stages would be in one file, and some
  // in another.
  Streams::LeftFile Take(const SavedPart& part, const std::string& folder);
  // The file that all stages have left, with the last of them. Errors as LinkTier's.
  absl::StatusOr<std::string> Link(const SavedPart& part, const TierFile& file,
                                   const std::string& path) const {
    return LinkTier(part.streams->layout(), layouts_, optimizer_, checksums_, file, path);
  }

 private:
  const std::vector<StageLayout>& layouts_;
  const OptimizerOptions& optimizer_;
  const std::function<void(const std::string&)>& note_;
  Version version_;  // that is saved
  bool takes_ = false;
  bool noted_ = false;
  std::map<StageId, std::vector<uint64_t>> checksums_;  // of stages that have left
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CHECKPOINT_TIER_IMAGE_H_
