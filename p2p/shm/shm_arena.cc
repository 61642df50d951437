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
  const std::string name = absl::StrCat("ringzero-worker-", owner.value, "-", word);
  const size_t count_bytes = Arena::CountBytes(bytes);
  ShmArena made;
  made.bytes = bytes;
  RZ_ASSIGN_OR_RETURN(made.files.data, MakeMemoryFile(name, bytes));
  RZ_ASSIGN_OR_RETURN(made.files.counts, MakeMemoryFile(name + "-holders", count_bytes));
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
  RZ_RETURN_IF_ERROR(CheckMemoryFile(files.data, bytes));
  RZ_RETURN_IF_ERROR(CheckMemoryFile(files.counts, count_bytes));
  const auto access =
      use == MemoryUse::kParameters ? Mapping::Access::kRead : Mapping::Access::kReadWrite;
  RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(files.data.get(), bytes, access));
  RZ_ASSIGN_OR_RETURN(Mapping counts, Mapping::OfFile(files.counts.get(), count_bytes,
                                                      Mapping::Access::kReadWrite));
  return ArenaPtr(Arena::Create(owner, use, std::move(data), std::move(counts)));
}

}  // namespace ringzero
