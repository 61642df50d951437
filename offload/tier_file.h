// TierFile: an anonymous file whose bytes are all there from the start.
//
//   RZ_ASSIGN_OR_RETURN(const TierFile file, TierFile::Create("/nvme", bytes));
//   store_options.file = file.descriptor();
//
// No folder lists it before Link, and its bytes are free when its last holder ends: also after
// kill -9.
#ifndef RINGZERO_OFFLOAD_TIER_FILE_H_
#define RINGZERO_OFFLOAD_TIER_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace ringzero {

// Ends a mapping of so many bytes.
struct UnmapBytes {
  int64_t bytes = 0;
  void operator()(std::byte* data) const;
};

class TierFile {
 public:
  // Errors name the folder. ResourceExhausted: how much is wanted and how much is free. NotFound,
  // PermissionDenied: as the system says.
  static absl::StatusOr<TierFile> Create(const std::string& folder, int64_t bytes);

  // The file of another process of this machine, to read: of the same user, as long as that
  // process has it. Errors say that it cannot be opened, or is another file by now.
  struct Handle {
    int64_t process = 0, descriptor = 0, device = 0, inode = 0, bytes = 0;
  };
  static absl::StatusOr<TierFile> Open(const Handle& handle);
  Handle handle() const;

  // Makes what the file holds durable, and gives it a name, in place of an old one. Errors name the
  // path: it is on another file system, or that one has no links to such files.
  absl::Status Link(const std::string& path) const;

  // Some of the mapped bytes were read: gives the memory back that it took.
  void Forget(std::span<const std::byte> bytes) const;

  int descriptor() const { return file_.get(); }
  int64_t bytes() const { return mapped_.get_deleter().bytes; }
  // All of the file as memory: for what is neither fetched nor stored at that time. What was
  // touched stays in memory until the system wants it, or is told to forget it.
  std::byte* mapped() const { return mapped_.get(); }
  // Reads and writes go past the page cache: whole pages at multiples of pages, from such memory.
  bool is_direct() const { return is_direct_; }
  // The folder is memory (tmpfs): nothing is saved by what lies there.
  bool is_memory() const { return is_memory_; }

 private:
  TierFile() = default;
  absl::Status Map(int64_t bytes, int protection, const std::string& name);
  UniqueFd file_;
  std::unique_ptr<std::byte, UnmapBytes> mapped_;
  bool is_direct_ = true;
  bool is_memory_ = false;
};

}  // namespace ringzero

#endif  // RINGZERO_OFFLOAD_TIER_FILE_H_
