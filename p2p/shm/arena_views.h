// ArenaViews: the arenas of all workers as one process sees them.
//
//   views.Add(std::move(arena));
//   RZ_ASSIGN_OR_RETURN(Buffer arrived, views.Adopt(origin, use, block));
//
// Thread-safe.
#ifndef RINGZERO_P2P_SHM_ARENA_VIEWS_H_
#define RINGZERO_P2P_SHM_ARENA_VIEWS_H_

#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "p2p/arena.h"

namespace ringzero {

class ArenaViews {
 public:
  void Add(ArenaPtr arena) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Key key(arena->owner(), arena->use());
    views_[key] = std::move(arena);
  }
  bool Has(WorkerId owner, MemoryUse use) const { return Find(owner, use) != nullptr; }
  // Empty: there is no such arena.
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) const {
    Arena* const arena = Find(owner, use);
    return arena == nullptr ? MappedMemory() : arena->Mapped();
  }
  // Likewise; as long as this lives.
  std::span<const std::byte> BytesOf(WorkerId owner, MemoryUse use) const {
    const Arena* const arena = Find(owner, use);
    return arena == nullptr ? std::span<const std::byte>() : arena->memory();
  }
  // Is this a block of one of these very views?
  bool Contains(const ArenaCell& cell) const {
    return Find(cell.arena().owner(), cell.arena().use()) == &cell.arena();
  }
  // As Arena::Adopt; Internal also when there is no such arena.
  absl::StatusOr<Buffer> Adopt(WorkerId owner, MemoryUse use, const ArenaBlock& block) const {
    Arena* arena = Find(owner, use);
    if (arena != nullptr) return arena->Adopt(block);
    return Internal("a message names memory of worker ", owner.value, ", which has not said hello");
  }

 private:
  using Key = std::pair<WorkerId, MemoryUse>;
  Arena* Find(WorkerId owner, MemoryUse use) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = views_.find(Key(owner, use));
    return found == views_.end() ? nullptr : found->second.get();
  }

  mutable std::mutex mutex_;
  std::map<Key, ArenaPtr> views_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_ARENA_VIEWS_H_
