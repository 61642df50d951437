// Arena: one worker's memory that travels, cut into blocks that are counted and used again by size.
//
//   Arena* arena = Arena::Create(owner, use, std::move(data), std::move(counts));
//   RZ_ASSIGN_OR_RETURN(Buffer sum, arena->Allocate(bytes));    // at its owner
//   Buffer same = peer_view->Adopt(block);                      // where it has travelled to
//   arena->Release();                                           // blocks still held keep it alive
//
// Each block has one holder count. Data and counts may lie in memory that several processes map:
// every process then has an Arena of its own as a view of it, and only the owner's allocates. The
// counts are lock-free atomics, so a process that is killed leaves nothing locked. Thread-safe.
#ifndef RINGZERO_P2P_ARENA_H_
#define RINGZERO_P2P_ARENA_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/mapping.h"
#include "p2p/transport.h"

namespace ringzero {

class Arena;

// Where a block lies; what a message says of its payload. All in bytes but `index`.
struct ArenaBlock {
  uint32_t index = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

using HolderCount = std::atomic<int32_t>;
static_assert(HolderCount::is_always_lock_free);

// One block as seen by one view. Lives as long as its Arena.
class ArenaCell final : public BufferCell {
 public:
  ArenaCell(Arena* arena, const ArenaBlock& block, std::byte* data, HolderCount* holders)
      : BufferCell(data, block.bytes), arena_(arena), block_(block), holders_(holders) {}

  void AddHolder() override;
  void DropHolder() override;
  int holders() const override { return holders_->load(std::memory_order_acquire); }

  const Arena& arena() const { return *arena_; }
  const ArenaBlock& block() const { return block_; }
  // The caller's holder goes on a journey: it stays counted, no longer as one of this view.
  void SendHolder();

 private:
  Arena* arena_;
  ArenaBlock block_;
  HolderCount* holders_;
};

struct ArenaReleaser {
  void operator()(Arena* arena) const;
};
using ArenaPtr = std::unique_ptr<Arena, ArenaReleaser>;

class Arena {
 public:
  // Bytes of holder counts for an arena of `bytes`.
  static size_t CountBytes(size_t bytes);
  // `data` and `counts` (zero at the owner's start) as mapped here. The caller must Release() it.
  static Arena* Create(WorkerId owner, MemoryUse use, Mapping data, Mapping counts);

  // Owner's view only. ResourceExhausted as Transport::Allocate says.
  absl::StatusOr<Buffer> Allocate(size_t bytes);
  // Likewise, as Transport::AllocateNumbered says.
  absl::StatusOr<Buffer> AllocateNumbered(int number, size_t bytes);
  // Takes over a holder that arrived by a message. Internal when `block` cannot be true.
  absl::StatusOr<Buffer> Adopt(const ArenaBlock& block);

  size_t numbered_bytes();  // payload of the blocks that AllocateNumbered has made

  std::span<std::byte> memory() const { return {data_.data(), data_.bytes()}; }
  bool Contains(std::span<const std::byte> block) const {
    const std::span<std::byte> all = memory();
    return !block.empty() && block.data() >= all.data() &&
           block.data() + block.size() <= all.data() + all.size();
  }
  WorkerId owner() const { return owner_; }
  MemoryUse use() const { return use_; }
  // One more that keeps it.
  ArenaPtr Again();
  MappedMemory Mapped();
  void Release();

 private:
  friend class ArenaCell;
  Arena(WorkerId owner, MemoryUse use, Mapping data, Mapping counts);
  ~Arena() = default;
  ArenaCell* CellAt(const ArenaBlock& block);  // mutex_ held
  // Of `blocks`, or a new one among them; mutex_ held.
  absl::StatusOr<Buffer> AllocateFrom(std::vector<ArenaCell*>& blocks, size_t most, size_t bytes);
  HolderCount* CountAt(uint32_t index) const;

  const WorkerId owner_;
  const MemoryUse use_;
  const Mapping data_;
  const Mapping counts_;
  std::atomic<int64_t> users_{1};  // the creator and every holder of this view

  std::mutex mutex_;
  std::vector<std::unique_ptr<ArenaCell>> cells_;      // by block index
  std::map<size_t, std::vector<ArenaCell*>> by_size_;  // owner only
  std::map<int, std::vector<ArenaCell*>> numbered_;    // likewise: at most one each
  size_t carved_bytes_ = 0;                            // owner only
};

inline void ArenaReleaser::operator()(Arena* arena) const { arena->Release(); }

}  // namespace ringzero

#endif  // RINGZERO_P2P_ARENA_H_
