// The Saver that writes a run's checkpoints to files.
//
//   RZ_ASSIGN_OR_RETURN(options.saver, MakeCheckpointSaver({.folder = "run", …}));   // EngineOptions
//
// Each worker writes the files of its stages; worker 0 makes them a checkpoint when all are there
// (checkpoint_folder.h). All of it happens on one thread of the saver's. The folder must be one that
// the hosts of all workers share. What goes wrong is told, and the run goes on: the checkpoints
// before it stand.
#ifndef RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_SAVER_H_
#define RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_SAVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "integrations/checkpoint/checkpoint_folder.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "sharding/plan.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"
#include "zero/saver.h"

namespace ringzero {

struct CheckpointSaverOptions {
  std::string folder;   // of the run; it is there
  int keep = 0;         // the newest checkpoints; 0: all
  CheckpointState run;  // worker 0: what is the same in all of its checkpoints
  int stages = 0;
  std::vector<StageLayout> layouts;  // by stage
  OptimizerOptions optimizer;
  TensorFileOptions files;
  // Called on the saver's thread, or not at all if it is null: the version has no checkpoint, and why.
  std::function<void(Version, const absl::Status&)> failed;
  CommitMoment moment;  // between any two steps
};

// Errors of TensorFileWriter::Create.
absl::StatusOr<std::unique_ptr<Saver>> MakeCheckpointSaver(CheckpointSaverOptions options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_SAVER_H_
