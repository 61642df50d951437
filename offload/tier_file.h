// TierFile: an anonymous file whose bytes are all there from the start.
//
//   RZ_ASSIGN_OR_RETURN(const TierFile file, TierFile::Create("/nvme", bytes));
//   store_options.file = file.descriptor();
//
// No folder lists it, and its bytes are free when its last holder ends: also after kill -9.
#ifndef RINGZERO_OFFLOAD_TIER_FILE_H_
#define RINGZERO_OFFLOAD_TIER_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace ringzero {

class TierFile {
 public:
  // Errors name the folder. ResourceExhausted: how much is wanted and how much is free. NotFound,
  // PermissionDenied: as the system says.
  static absl::StatusOr<TierFile> Create(const std::string& folder, int64_t bytes);

  int descriptor() const { return file_.get(); }
  // Reads and writes go past the page cache: whole pages at multiples of pages, from such memory.
  bool is_direct() const { return is_direct_; }
  // The folder is memory (tmpfs): nothing is saved by what lies there.
  bool is_memory() const { return is_memory_; }

 private:
  TierFile() = default;
  UniqueFd file_;
  bool is_direct_ = true;
  bool is_memory_ = false;
};

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_TIER_FILE_H_
