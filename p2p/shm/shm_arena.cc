// Memory files, their last seals, and mappings of both sides.
#include "p2p/shm/shm_arena.h"

#include <fcntl.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/memory_file.h"

namespace ringzero {

absl::StatusOr<ShmArena> MakeShmArena(WorkerId owner, MemoryUse use, size_t bytes) {
  const char* const word = use == MemoryUse::kParameters ? "parameters" : "sums";
  ShmArena made;
  made.bytes = bytes;
  RZ_ASSIGN_OR_RETURN(
      made.file, MakeMemoryFile(absl::StrCat("ringzero-worker-", owner.value, "-", word), bytes));
  RZ_ASSIGN_OR_RETURN(Mapping data,
                      Mapping::OfFile(made.file.get(), bytes, Mapping::Access::kReadWrite));
  // Nobody else can ever map parameters writable. A kernel before 5.1 does not know this seal;
  // there the peers' read-only mappings alone protect them.
  if (use == MemoryUse::kParameters) {
    (void)fcntl(made.file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  }
  (void)fcntl(made.file.get(), F_ADD_SEALS, F_SEAL_SEAL);
  made.arena = Arena::Create(owner, use, std::move(data));
  return made;
}

absl::StatusOr<MappedMemory> MapShmArena(MemoryUse use, size_t bytes, const UniqueFd& file) {
  RZ_RETURN_IF_ERROR(CheckMemoryFile(file, bytes));
  const auto access =
      use == MemoryUse::kParameters ? Mapping::Access::kRead : Mapping::Access::kReadWrite;
  RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(file.get(), bytes, access));
  const auto kept = std::make_shared<const Mapping>(std::move(data));
  return MappedMemory{{kept->data(), kept->bytes()}, kept};
}

}  // namespace ringzero
