// Arena: one worker's memory of a transport, cut into blocks that are used again by size.
//
//   std::shared_ptr<Arena> arena = Arena::Create(owner, use, std::move(mapping));
//   RZ_ASSIGN_OR_RETURN(Buffer sum, arena->Allocate(bytes));    // keeps the arena
//
// Blocks are cut one behind the other, in the order of the calls, from the first byte on. So the
// place of a block follows from the calls before it (zero/block_memory.h). Thread-safe.
#ifndef RINGZERO_P2P_ARENA_H_
#define RINGZERO_P2P_ARENA_H_

#include <array>
#include <cstddef>
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

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static std::shared_ptr<Arena> Create(WorkerId owner, MemoryUse use, Mapping data) {
    return std::shared_ptr<Arena>(new Arena(owner, use, std::move(data)));
  }

  // ResourceExhausted as Transport::Allocate says.
  absl::StatusOr<Buffer> Allocate(size_t bytes);

  std::span<std::byte> memory() const { return {data_.data(), data_.bytes()}; }
  bool Contains(std::span<const std::byte> block) const {
    const std::span<std::byte> all = memory();
    return !block.empty() && block.data() >= all.data() &&
           block.data() + block.size() <= all.data() + all.size();
  }
  MemoryUse use() const { return use_; }
  MappedMemory Mapped() { return {memory(), shared_from_this()}; }

 private:
  Arena(WorkerId owner, MemoryUse use, Mapping data)
      : owner_(owner), use_(use), data_(std::move(data)) {}
  void Free(std::byte* block, size_t bytes);

  const WorkerId owner_;
  const MemoryUse use_;
  const Mapping data_;

  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size
  size_t carved_bytes_ = 0;
};

// One worker's, by MemoryUse.
using Arenas = std::array<std::shared_ptr<Arena>, kMemoryUses>;

}  // namespace ringzero

#endif  // RINGZERO_P2P_ARENA_H_
