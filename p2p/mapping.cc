// mmap and munmap with Statuses.
#include "p2p/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "p2p/launch/limits.h"

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

absl::StatusOr<void*> Map(size_t bytes, int protection, int flags, int descriptor) {
  if (bytes < kHugePage) {
    void* data = mmap(nullptr, bytes == 0 ? 1 : bytes, protection, flags, descriptor, 0);
    if (data == MAP_FAILED) return Refused(bytes);
    return data;
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
  if (end < begin + reserved_bytes) {
    munmap(end, static_cast<size_t>(begin + reserved_bytes - end));
  }
  return aligned;
}

}  // namespace

absl::StatusOr<Mapping> Mapping::Anonymous(size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  absl::StatusOr<void*> data = Map(bytes, PROT_READ | PROT_WRITE, flags, -1);
  if (!data.ok()) return data.status();
  if (bytes >= kHugePage) (void)madvise(*data, bytes, MADV_HUGEPAGE);
  return Mapping(*data, bytes);
}

absl::StatusOr<Mapping> Mapping::SharedWithChildren(size_t bytes) {
  absl::StatusOr<void*> data = Map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
  if (!data.ok()) return data.status();
  return Mapping(*data, bytes);
}

absl::StatusOr<Mapping> Mapping::OfFile(int descriptor, size_t bytes, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  absl::StatusOr<void*> data = Map(bytes, protection, MAP_SHARED, descriptor);
  if (!data.ok()) return data.status();
  return Mapping(*data, bytes);
}

Mapping Mapping::Foreign(std::byte* data, size_t bytes, Release release) {
  Mapping mapping(data, bytes);
  mapping.release_ = release;
  return mapping;
}

void Mapping::BackByHugePages(size_t begin, size_t end) const {
  if (release_ != nullptr) return;
  begin = begin / kHugePage * kHugePage;
  end = std::min((end + kHugePage - 1) / kHugePage, bytes_ / kHugePage) * kHugePage;
  if (begin >= end) return;
  // Pages that are not there yet are not collapsed; those that are there already are left alone.
  if (madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) != 0) return;
  (void)madvise(data_ + begin, end - begin, MADV_COLLAPSE);
}

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  if (release_ != nullptr) {
    release_(data_, bytes_);
  } else {
    munmap(data_, bytes_ == 0 ? 1 : bytes_);
  }
}

}  // namespace ringzero
