// Arenas in memory files: made by their owner, mapped by every worker of the host.
//
//   RZ_ASSIGN_OR_RETURN(ShmArena mine, MakeShmArena(self, MemoryUse::kSums, bytes));
//   // mine.file travels to the peers over a socket;   there:
//   RZ_ASSIGN_OR_RETURN(MappedMemory view, MapShmArena(MemoryUse::kSums, bytes, file));
//   views.Add(owner, MemoryUse::kSums, std::move(view));
//
// Memory files have no name: they vanish with the last process that maps them, however it ends.
// Their size is sealed, so that no process can be killed by a shrunken file.
#ifndef RINGZERO_P2P_SHM_SHM_ARENA_H_
#define RINGZERO_P2P_SHM_SHM_ARENA_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/transport.h"
#include "p2p/unique_fd.h"

namespace ringzero {

struct ShmArena {
  size_t bytes = 0;
  std::shared_ptr<Arena> arena;
  UniqueFd file;  // may be closed once it has been sent
};

// At the owner. ResourceExhausted when the system refuses.
absl::StatusOr<ShmArena> MakeShmArena(WorkerId owner, MemoryUse use, size_t bytes);

// At another worker: parameters are mapped read-only, sums writable. Internal when the file is not
// what `bytes` says or is not sealed. The file may be closed afterwards.
absl::StatusOr<MappedMemory> MapShmArena(MemoryUse use, size_t bytes, const UniqueFd& file);

// The arenas of the other workers, as this process maps them. Thread-safe.
class ArenaViews {
 public:
  void Add(WorkerId owner, MemoryUse use, MappedMemory memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    views_[{owner, use}] = std::move(memory);
  }
  // Empty: there is no such arena.
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = views_.find({owner, use});
    return found == views_.end() ? MappedMemory() : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<WorkerId, MemoryUse>, MappedMemory> views_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_ARENA_H_
