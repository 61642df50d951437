// Arenas in memory files: made by their owner, mapped by every worker of the host.
//
//   RZ_ASSIGN_OR_RETURN(ShmArena mine, MakeShmArena(self, MemoryUse::kSums, bytes));
//   // mine.files travel to the peers over a socket;   there:
//   RZ_ASSIGN_OR_RETURN(ArenaPtr view, MapShmArena(owner, MemoryUse::kSums, bytes, files));
//
// Memory files have no name: they vanish with the last process that maps them, however it ends.
// Their size is sealed, so that no process can be killed by a shrunken file. Functions without
// state.
#ifndef RINGZERO_P2P_SHM_SHM_ARENA_H_
#define RINGZERO_P2P_SHM_SHM_ARENA_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/transport.h"
#include "p2p/unique_fd.h"

namespace ringzero {

struct ArenaFiles {
  UniqueFd data;
  UniqueFd counts;  // holder counts, Arena::CountBytes of them; always mapped writable
};

struct ShmArena {
  size_t bytes = 0;
  ArenaPtr arena;
  ArenaFiles files;  // may be closed once they have been sent
};

// At the owner. ResourceExhausted when the system refuses.
absl::StatusOr<ShmArena> MakeShmArena(WorkerId owner, MemoryUse use, size_t bytes);

// At another worker: parameters are mapped read-only, sums writable. Internal when the files are
// not what `bytes` says or are not sealed. The files may be closed afterwards.
absl::StatusOr<ArenaPtr> MapShmArena(WorkerId owner, MemoryUse use, size_t bytes,
                                     const ArenaFiles& files);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_ARENA_H_
