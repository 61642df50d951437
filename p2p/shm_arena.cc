// memfd_create, seals, and mappings of both sides.
#include "p2p/shm_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status SystemError(const std::string& what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<UniqueFd> MakeFile(const std::string& name, size_t bytes) {
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

absl::Status CheckFile(const UniqueFd& file, size_t bytes) {
  struct stat facts = {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed || fstat(file.get(), &facts) != 0 || static_cast<size_t>(facts.st_size) < bytes) {
    return absl::InternalError(
        absl::StrCat("shared memory came that is not sealed or smaller than ", bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShmArena> MakeShmArena(WorkerId owner, MemoryUse use, size_t bytes) {
  const char* const word = use == MemoryUse::kParameters ? "parameters" : "sums";
  const std::string name = absl::StrCat("ringzero-worker-", owner.value, "-", word);
  const size_t count_bytes = Arena::CountBytes(bytes);
  ShmArena made;
  made.bytes = bytes;
  RZ_ASSIGN_OR_RETURN(made.files.data, MakeFile(name, bytes));
  RZ_ASSIGN_OR_RETURN(made.files.counts, MakeFile(name + "-holders", count_bytes));
  const auto access = Mapping::Access::kReadWrite;
  RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(made.files.data.get(), bytes, access));
  RZ_ASSIGN_OR_RETURN(Mapping counts,
                      Mapping::OfFile(made.files.counts.get(), count_bytes, access));
  // Nobody else can ever map parameters writable. A kernel before 5.1 does not know this seal;
  // there the peers' read-only mappings alone protect them.
  if (use == MemoryUse::kParameters) {
    (void)fcntl(made.files.data.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  }
  (void)fcntl(made.files.data.get(), F_ADD_SEALS, F_SEAL_SEAL);
  made.arena = ArenaPtr(Arena::Create(owner, use, std::move(data), std::move(counts)));
  return made;
}

absl::StatusOr<ArenaPtr> MapShmArena(WorkerId owner, MemoryUse use, size_t bytes,
                                     const ArenaFiles& files) {
  const size_t count_bytes = Arena::CountBytes(bytes);
  RZ_RETURN_IF_ERROR(CheckFile(files.data, bytes));
  RZ_RETURN_IF_ERROR(CheckFile(files.counts, count_bytes));
  const auto access =
      use == MemoryUse::kParameters ? Mapping::Access::kRead : Mapping::Access::kReadWrite;
  RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(files.data.get(), bytes, access));
  RZ_ASSIGN_OR_RETURN(Mapping counts, Mapping::OfFile(files.counts.get(), count_bytes,
                                                      Mapping::Access::kReadWrite));
  return ArenaPtr(Arena::Create(owner, use, std::move(data), std::move(counts)));
}

}  // namespace ringzero
