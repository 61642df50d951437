// mmap, munmap, memfd_create and seals, with Statuses.
#include "p2p/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/job/limits.h"

namespace ringzero {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

std::byte* AlignUp(void* at) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(at) + kHugePage - 1) /
                                      kHugePage * kHugePage);
}

absl::Status Refused(size_t bytes) {
  const int error = errno;
  const std::string what =
      absl::StrCat("cannot map ", bytes, " bytes of memory: ", std::strerror(error));
  return error == ENOMEM ? OutOfMemory(what) : absl::ResourceExhaustedError(what);
}

void Unmap(std::byte* data, size_t bytes) { munmap(data, bytes == 0 ? 1 : bytes); }

}  // namespace

absl::StatusOr<Mapping> Mapping::Map(size_t bytes, int protection, int flags, int descriptor) {
  if (bytes < kHugePage) {
    void* data = mmap(nullptr, bytes == 0 ? 1 : bytes, protection, flags, descriptor, 0);
    if (data == MAP_FAILED) return Refused(bytes);
    return Mapping(static_cast<std::byte*>(data), bytes, Unmap);
  }
  // An aligned place within a larger reservation, of which the rest is given back.
  const size_t reserved_bytes = bytes + kHugePage;
  void* reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return Refused(bytes);
  std::byte* const begin = static_cast<std::byte*>(reserved);
  std::byte* const aligned = AlignUp(reserved);
  if (mmap(aligned, bytes, protection, flags | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    const absl::Status refused = Refused(bytes);
    munmap(reserved, reserved_bytes);
    return refused;
  }
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* const end = aligned + (bytes + page - 1) / page * page;
  if (end < begin + reserved_bytes) munmap(end, static_cast<size_t>(begin + reserved_bytes - end));
  return Mapping(aligned, bytes, Unmap);
}

absl::StatusOr<Mapping> Mapping::Anonymous(size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  RZ_ASSIGN_OR_RETURN(Mapping mapping, Map(bytes, PROT_READ | PROT_WRITE, flags, -1));
  if (bytes >= kHugePage) (void)madvise(mapping.data(), bytes, MADV_HUGEPAGE);
  return mapping;
}

absl::StatusOr<Mapping> Mapping::Shared(size_t bytes, const UniqueFd& file) {
  if (file) return OfFile(file, bytes, Access::kReadWrite);
  return Map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

absl::StatusOr<Mapping> Mapping::OfFile(const UniqueFd& file, size_t bytes, Access access) {
  struct stat facts = {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed || fstat(file.get(), &facts) != 0 || static_cast<size_t>(facts.st_size) < bytes) {
    return Internal("shared memory came that is not sealed or smaller than ", bytes, " bytes");
  }
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  return Map(bytes, protection, MAP_SHARED, file.get());
}

void Mapping::BackByHugePages(size_t begin, size_t end) const {
  if (data_.get_deleter().release != Unmap) return;
  begin = begin / kHugePage * kHugePage;
  end = std::min((end + kHugePage - 1) / kHugePage, bytes() / kHugePage) * kHugePage;
  if (begin >= end) return;
  // Pages that are not there yet are not collapsed; those that are there already are left alone.
  if (madvise(data() + begin, end - begin, MADV_POPULATE_WRITE) != 0) return;
  (void)madvise(data() + begin, end - begin, MADV_COLLAPSE);
}

absl::StatusOr<UniqueFd> MakeMemoryFile(const std::string& name, size_t bytes) {
  UniqueFd file(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return SystemError("cannot make shared memory (memfd_create)");
  if (ftruncate(file.get(), static_cast<off_t>(std::max<size_t>(bytes, 1))) != 0) {
    return SystemError(absl::StrCat("cannot make ", bytes, " bytes of shared memory"));
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return SystemError("cannot seal the size of shared memory");
  }
  return file;
}

}  // namespace ringzero
