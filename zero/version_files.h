// VersionFiles: versions of parameters that lie in a file of their owner
// (StagePlan::streams_parameters), read and written as whole images.
//
//   RZ_RETURN_IF_ERROR(files.Begin(file));                    // this worker's own
//   store.Move(files.RunOf(load), [=] { return CheckImage(slot, bytes, version); });
//
// An image is a version's values and a trailer: which version it is, and a checksum. So what a disk
// has lost, mixed up or damaged is an error. The mutex of the engine guards all calls but Check: when a
// save has been made, all files are known.
#ifndef RINGZERO_ZERO_VERSION_FILES_H_
#define RINGZERO_ZERO_VERSION_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/state_store.h"
#include "offload/tier_file.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "zero/block_memory.h"

namespace ringzero {

// Where each version begins in the file of `home`. Pure.
struct VersionLayout {
  std::map<MemoryBlock, int64_t> begins;
  int64_t bytes = 0;  // of the file; 0: it has none
};
VersionLayout LayOutVersions(const Plan& plan, WorkerId home);

// `image` holds version `label` of a stage with so many bytes of parameters: says so behind them.
void SealImage(std::span<std::byte> image, int64_t parameter_bytes, Version label);
// DataLoss: it is of another version, or damaged.
absl::Status CheckImage(std::span<const std::byte> image, int64_t parameter_bytes, Version label);

class VersionFiles {
 public:
  // All of them must outlive this.
  VersionFiles(const Plan& plan, WorkerId self, BlockMemory& blocks)
      : plan_(plan), self_(self), blocks_(blocks) {}

  // This worker's own versions are the mapped file from here on: for what writes them before the
  // first update, and for saves. InvalidArgument: there are some, and `file` is null.
  absl::Status Begin(std::shared_ptr<const TierFile> file);

  // Where a version lies that another worker of this host has in its file, by its handle. The
  // errors of TierFile::Open name that worker.
  absl::StatusOr<MappedMemory> Of(const LentBlock& lent, const std::byte* handle);

  // One was written there: the file has it. Nothing for values that lie elsewhere, as below.
  void Seal(StageId stage, const std::byte* values, Version label) const;
  // One was read there: the error of CheckImage. Gives the memory back that it took.
  absl::Status Check(StageId stage, const std::byte* values, Version label) const;

  // What a Load or an Unload moves between its operands.
  StateStore::Run RunOf(const Instruction& op) const;

 private:
  struct Home {
    std::shared_ptr<const TierFile> file;
    VersionLayout layout;
    MappedMemory At(const Plan& plan, const MemoryBlock& version) const;
    bool Contains(const std::byte* values) const;
  };
  // The image of these values; empty: they do not lie in the own file.
  std::span<std::byte> ImageOf(StageId stage, const std::byte* values) const;

  const Plan& plan_;
  const WorkerId self_;
  BlockMemory& blocks_;
  std::map<WorkerId, Home> homes_;  // whose files are known here
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_VERSION_FILES_H_
