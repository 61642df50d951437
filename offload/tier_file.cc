// What a file system offers for it, and what it does without.
#include "offload/tier_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

// Where the file system has no anonymous files (NFS): one with a name that is gone at once.
int OpenUnlisted(const std::string& folder, int flags) {
  std::string path = absl::StrCat(folder, "/ringzero-tier-XXXXXX");
  const int file = mkostemp(path.data(), flags);
  if (file >= 0) unlink(path.c_str());
  return file;
}

int OpenAnonymous(const std::string& folder, int flags) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | flags, 0644);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  return OpenUnlisted(folder, flags);
}

}  // namespace

absl::Status TierFile::Link(const std::string& path) const {
  const std::string self = absl::StrCat("/proc/self/fd/", descriptor());
  if (fdatasync(descriptor()) != 0 || (unlink(path.c_str()) != 0 && errno != ENOENT) ||
      linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": a tier file cannot get this name"));
  }
  return absl::OkStatus();
}

void TierFile::Forget(std::span<const std::byte> bytes) const {
  auto* const begin = const_cast<std::byte*>(bytes.data());
  (void)madvise(begin, bytes.size(), MADV_DONTNEED);
  (void)posix_fadvise(descriptor(), begin - mapped(), std::ssize(bytes), POSIX_FADV_DONTNEED);
}

void UnmapBytes::operator()(std::byte* data) const { munmap(data, bytes); }

absl::StatusOr<TierFile> TierFile::Create(const std::string& folder, int64_t bytes) {
  TierFile tier;
  tier.file_ = UniqueFd(OpenAnonymous(folder, O_CLOEXEC | O_DIRECT));
  if (!tier.file_ && errno == EINVAL) {
    tier.is_direct_ = false;
    tier.file_ = UniqueFd(OpenAnonymous(folder, O_CLOEXEC));
  }
  if (!tier.file_) {
    return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": no file can be made there"));
  }
  struct statfs system;
  tier.is_memory_ = fstatfs(tier.descriptor(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  // Asked first: to fail, the system would fill the disk.
  struct statvfs free;
  const bool known = fstatvfs(tier.descriptor(), &free) == 0;
  const bool fits = !known || static_cast<uint64_t>(bytes) / free.f_frsize < free.f_bavail;
  const int error = fits ? posix_fallocate(tier.descriptor(), 0, bytes) : ENOSPC;
  if (error == ENOSPC) {
    return absl::ResourceExhaustedError(absl::StrCat(
        folder, ": wanted ", bytes, " bytes, found ",
        known ? absl::StrCat(uint64_t{free.f_bavail} * free.f_frsize, " free") : "fewer"));
  }
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat(folder, ": ", bytes, " bytes"));
  RZ_RETURN_IF_ERROR(tier.Map(bytes, PROT_READ | PROT_WRITE, folder));
  return tier;
}

absl::Status TierFile::Map(int64_t bytes, int protection, const std::string& name) {
  void* const mapped = mmap(nullptr, bytes, protection, MAP_SHARED, descriptor(), 0);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name, ": its file cannot be mapped"));
  }
  mapped_ = {static_cast<std::byte*>(mapped), UnmapBytes{bytes}};
  return absl::OkStatus();
}

absl::StatusOr<TierFile> TierFile::Open(const Handle& handle) {
  TierFile tier;
  const std::string name = absl::StrCat("/proc/", handle.process, "/fd/", handle.descriptor);
  tier.file_ = UniqueFd(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!tier.file_ && errno == EINVAL)
    tier.file_ = UniqueFd(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!tier.file_) return absl::ErrnoToStatus(errno, name);
  const Handle found = tier.handle();
  if (found.device != handle.device || found.inode != handle.inode) {
    return Internal(name, ": is another file");
  }
  RZ_RETURN_IF_ERROR(tier.Map(handle.bytes, PROT_READ, name));
  return tier;
}

TierFile::Handle TierFile::handle() const {
  struct stat of {};
  (void)fstat(descriptor(), &of);
  return {.process = getpid(),
          .descriptor = descriptor(),
          .device = static_cast<int64_t>(of.st_dev),
          .inode = static_cast<int64_t>(of.st_ino),
          .bytes = bytes()};
}

}  // namespace ringzero
