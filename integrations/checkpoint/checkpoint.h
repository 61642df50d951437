// Checkpoint: a version of a run in files: reads one, and makes the saver that writes them.
//
//   RZ_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open("run/iteration-000100"));
//   request.first_iteration = checkpoint->state().version.value;     // PlanRequest
//   options.engine.beginning = BeginningOf(checkpoint, planned, …);  // RingModelOptions
//
// Everything is found by its name: a run may read what another number of workers and stages wrote.
#ifndef RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_H_
#define RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "integrations/checkpoint/checkpoint_folder.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "integrations/data/safetensors.h"
#include "sharding/plan.h"
#include "zero/engine_options.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"
#include "zero/optimizer/sharded_optimizer.h"
#include "zero/saver.h"

namespace ringzero {

// Thread-safe.
class Checkpoint {
 public:
  enum class Check { kHeads, kValues };

  // Looks at every file; kValues reads all of it. NotFound, or InvalidArgument that names the file:
  // missing, damaged, or of another checkpoint.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& path,
                                                                Check check = Check::kValues);
  // The checkpoint that `latest` names, or the newest before it that is whole; where all of those
  // are damaged, the newest of the others. `skipped` is told of each that is not whole. Null: the
  // folder has none. Where none is whole, the error of the last one. Reads all of them.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenNewest(
      const std::string& folder, const std::function<void(const absl::Status&)>& skipped);

  const CheckpointState& state() const { return state_; }
  const std::string& path() const { return path_; }

  // Parameters and running statistics, in fp32.
  const TensorFiles& model() const { return model_; }
  // The optimizer's state of a stage, in StateLayout. NotFound, InvalidArgument name the tensor.
  absl::Status ReadState(const StateLayout& state, const StageLayout& layout, std::byte* out) const;
  // A stage as it travels, of a label other than its version. NotFound: it has none of that label.
  absl::Status ReadVersion(const StageLayout& layout, Version label, std::byte* out) const;
  bool HasLabel(const StageLayout& layout, Version label) const;

 private:
  Checkpoint(std::string path, CheckpointState state)
      : path_(std::move(path)), state_(std::move(state)) {}

  const std::string path_;
  const CheckpointState state_;
  TensorFiles model_, optimizer_, stale_;
};

// The run goes on from the checkpoint, with a plan whose first_iteration is its version. Keeps the
// checkpoint. Where the plan's rule is another, older versions are not used.
Beginning BeginningOf(const std::shared_ptr<const Checkpoint>& checkpoint, const Plan& plan,
                      const std::vector<StageLayout>& layouts, const OptimizerOptions& optimizer);

// One line if the plan's first iterations want older versions that BeginningOf has not; or empty.
std::string DescribeNewStart(const Checkpoint& checkpoint, const Plan& plan,
                             const std::vector<StageLayout>& layouts);

// Writes a run's checkpoints (EngineOptions::saver), on a thread of its own. Each worker writes the
// files of its stages; worker 0 makes them a checkpoint when all are there. The folder must be one
// that the hosts of all workers share. What goes wrong is told, and the run goes on: the
// checkpoints before it stand. States that stream are not copied, if their file can get a name in
// the folder (tier_image.h).
struct CheckpointSaverOptions {
  std::string folder;                // of the run; it is there
  int keep = 0;                      // the newest checkpoints; 0: all
  CheckpointState run;               // worker 0: what is the same in all of its checkpoints
  std::vector<StageLayout> layouts;  // by stage
  OptimizerOptions optimizer;
  TensorFileOptions files;
  // Called on the saver's thread: the version has no checkpoint, and why.
  std::function<void(Version, const absl::Status&)> failed = [](Version, const absl::Status&) {};
  // Likewise: what the user should know, once.
  std::function<void(const std::string&)> note = [](const std::string&) {};
  CommitMoment moment = [] {};  // between any two steps
};

// Errors of TensorFileWriter::Create.
absl::StatusOr<std::unique_ptr<Saver>> MakeCheckpointSaver(CheckpointSaverOptions options);

// The states of an optimizer for other loops. Each worker writes a file of its own shard:
// "fc.weight.exp_avg", row-major; "fc.weight.step", one int64. Errors name the file.
absl::Status SaveOptimizerStates(const ShardedOptimizer& optimizer, const std::string& path);
// From the files of any number of workers, of a checkpoint, or of torch's state_dict by name
// ("state." may stand before a name, and a step may be fp32). On all workers, between two updates.
// NotFound, InvalidArgument: a tensor is not there, or of another shape.
absl::Status LoadOptimizerStates(const TensorFiles& files, ShardedOptimizer& optimizer);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_H_
