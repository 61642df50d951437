// memfd_create and seals.
#include "p2p/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {}  // namespace

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

absl::Status CheckMemoryFile(const UniqueFd& file, size_t bytes) {
  struct stat facts = {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed || fstat(file.get(), &facts) != 0 || static_cast<size_t>(facts.st_size) < bytes) {
    return Internal("shared memory came that is not sealed or smaller than ", bytes, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace ringzero
