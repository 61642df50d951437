// mmap and munmap with Statuses.
#include "p2p/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

absl::StatusOr<void*> Map(size_t bytes, int protection, int flags, int descriptor) {
  void* data = mmap(nullptr, bytes == 0 ? 1 : bytes, protection, flags, descriptor, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes of memory: ", std::strerror(errno)));
  }
  return data;
}

}  // namespace

absl::StatusOr<Mapping> Mapping::Anonymous(size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  absl::StatusOr<void*> data = Map(bytes, PROT_READ | PROT_WRITE, flags, -1);
  if (!data.ok()) return data.status();
  return Mapping(*data, bytes);
}

absl::StatusOr<Mapping> Mapping::OfFile(int descriptor, size_t bytes, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  absl::StatusOr<void*> data = Map(bytes, protection, MAP_SHARED, descriptor);
  if (!data.ok()) return data.status();
  return Mapping(*data, bytes);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_ == 0 ? 1 : bytes_);
}

}  // namespace ringzero
