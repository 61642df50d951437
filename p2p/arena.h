// Arena: one worker's memory of a transport, cut into blocks that are used again by size.
//
//   const PayloadMemory memory = HostMemory();                  // or MakeCudaMemory's
//   RZ_ASSIGN_OR_RETURN(Arenas mine, MakeArenas(self, memory, options));
//   RZ_ASSIGN_OR_RETURN(Buffer sum, mine[1]->Allocate(bytes));  // keeps the arena
//   RZ_RETURN_IF_ERROR(memory.copy(to, from, bytes));           // `to`: in an arena's block
//
//   RZ_ASSIGN_OR_RETURN(ShmArenas shared, MakeShmArenas(self, options));
//   ... shared[1].file travels to the peers over a socket; there:
//   RZ_ASSIGN_OR_RETURN(MappedMemory view, MapShmArena(MemoryUse::kSums, bytes, file));
//
// Blocks are cut one behind the other, in the order of the calls, from the first byte on. So the
// place of a block follows from the calls before it (zero/block_memory.h). Thread-safe.
#ifndef RINGZERO_P2P_ARENA_H_
#define RINGZERO_P2P_ARENA_H_

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "base/unique_fd.h"
#include "p2p/mapping.h"
#include "p2p/transport.h"

namespace ringzero {

// Whether a block, which is not empty, is all within `memory`.
inline bool LiesIn(std::span<const std::byte> block, std::span<const std::byte> memory) {
  return !block.empty() && block.data() >= memory.data() &&
         block.data() + block.size() <= memory.data() + memory.size();
}

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static std::shared_ptr<Arena> Create(WorkerId owner, MemoryUse use, Mapping data) {
    return std::shared_ptr<Arena>(new Arena(owner, use, std::move(data)));
  }

  // ResourceExhausted as Transport::Allocate says.
  absl::StatusOr<Buffer> Allocate(size_t bytes);

  std::span<std::byte> memory() const { return {data_.data(), data_.bytes()}; }
  bool Contains(std::span<const std::byte> block) const { return LiesIn(block, memory()); }
  MemoryUse use() const { return use_; }
  MappedMemory Mapped() { return {memory(), shared_from_this()}; }

 private:
  Arena(WorkerId owner, MemoryUse use, Mapping data)
      : owner_(owner), use_(use), data_(std::move(data)) {}

  const WorkerId owner_;
  const MemoryUse use_;
  const Mapping data_;

  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size
  size_t carved_bytes_ = 0;
};

// One worker's, by MemoryUse.
using Arenas = std::array<std::shared_ptr<Arena>, kMemoryUses>;

// Where arenas lie, and how bytes get there and back. The functions are thread-safe; what they map
// outlives them.
struct PayloadMemory {
  MemoryKind kind = MemoryKind::kHost;
  std::function<absl::StatusOr<Mapping>(size_t bytes)> map;
  // Copies between this memory and the host's, or within either; done when it returns.
  std::function<absl::Status(std::byte* to, const std::byte* from, size_t bytes)> copy;
};
PayloadMemory HostMemory();

// Of `options`' sizes. ResourceExhausted when there is not enough.
absl::StatusOr<Arenas> MakeArenas(WorkerId owner, const PayloadMemory& memory,
                                  const TransportOptions& options);

// An arena in a memory file, which every worker of the host maps.
struct ShmArena {
  std::shared_ptr<Arena> arena;
  UniqueFd file;  // may be closed once it has been sent
};
using ShmArenas = std::array<ShmArena, kMemoryUses>;

// At the owner. ResourceExhausted when the system refuses.
absl::StatusOr<ShmArenas> MakeShmArenas(WorkerId owner, const TransportOptions& options);

// At another worker: parameters are mapped read-only, sums writable. Internal when the file is not
// what `bytes` says or is not sealed. The file may be closed afterwards.
absl::StatusOr<MappedMemory> MapShmArena(MemoryUse use, size_t bytes, const UniqueFd& file);

}  // namespace ringzero

#endif  // RINGZERO_P2P_ARENA_H_
