// The folder in which a run keeps its checkpoints.
//
//   run/lock                                     held while a job may write here
//   run/latest                                   "iteration-000100"
//   run/iteration-000100/state.json              which run, its scalars, checksums of other files
//   run/iteration-000100/model-00002-of-00004.safetensors       fp32 parameters of stage 1
//   run/iteration-000100/model.safetensors.index.json           in which file each name is
//   run/iteration-000100/optimizer-00002-of-00004.safetensors   "fc.weight.exp_avg", …
//   run/iteration-000100/optimizer-tier-00002-of-00004.safetensors     a worker's on NVMe, if taken over
//   run/iteration-000100/stale-00002-of-00004.safetensors       what an iteration reads besides
//   run/iteration-000100/buffers-00002-of-00004.safetensors     running statistics
//   run/.iteration-000200.tmp/                   being written, or left by a job that was killed
//
// A checkpoint gets its name when it is whole and durable.
#ifndef RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/unique_fd.h"
#include "zero/precision.h"

namespace ringzero {

inline constexpr char kStateFile[] = "state.json";

// Without order. None where there is no folder, or it cannot be read to its end.
std::vector<std::string> NamesIn(const std::string& folder);

// "iteration-000100"
std::string CheckpointName(Version version);
// "fc.weight@99", "fc.weight@p100": a parameter of another version (sharding/op.h).
std::string StaleName(const std::string& parameter, Version label);

// What state.json says.
struct CheckpointState {
  Version version{0};
  // Of the run that saved it.
  std::string rule;
  bool predict = false;
  std::string optimizer;
  std::string precision;  // what computes
  int workers = 0;
  int stages = 0;
  int micro_batches = 0;  // of one update: N·K
  int64_t train_batch = 0;
  uint64_t seed = 0;
  std::string data;     // lines that say which samples there are
  std::string made_by;  // versions of the programs
  std::string plan;     // PlanToString
  // Of the run before iteration `version` (Beginning in zero/engine_options.h).
  double norm = 0;
  std::optional<LossScale::History> loss_scale;
  std::map<std::string, std::string> files;  // name: ChecksumOfHead
};

std::string WriteCheckpointState(const CheckpointState& state);
// `members`: the text up to the brace that closes it. Adds a last member, the SHA-256 of this text.
std::string SealCheckpointState(const std::string& members);
// InvalidArgument names the member.
absl::StatusOr<CheckpointState> ParseCheckpointState(const std::string& text);

// Makes this the one job that may write to a folder, as long as the lock is open here, or in a
// process that this one has forked. Makes the folder, and removes what a killed job has left half
// written. AlreadyExists names the job that holds the lock. PermissionDenied: it cannot be written.
absl::StatusOr<UniqueFd> LockCheckpoints(const std::string& folder);

// The versions that have a checkpoint, ascending. None where there is no folder.
std::vector<Version> CheckpointsIn(const std::string& folder);
// What `latest` names; nothing if it names none.
std::optional<Version> LatestIn(const std::string& folder);

// Where a commit is, for tests that end the process there.
using CommitMoment = std::function<void()>;

// Makes .iteration-….tmp, whose files are durable, the checkpoint of the version: its name, then
// `latest`; then removes all but the newest `keep` up to this version (0: removes none).
absl::Status CommitCheckpoint(const std::string& folder, Version version, int keep,
                              const CommitMoment& moment);
std::string UnfinishedFolder(const std::string& folder, Version version);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CHECKPOINT_CHECKPOINT_FOLDER_H_
