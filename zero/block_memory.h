// BlockMemory: the memory of the blocks that a worker has from the start of a run to its end.
//
//   RZ_RETURN_IF_ERROR(memory.Allocate(table, allocate));    // BlockTable's
//   const std::byte* sum = memory.Read(block);
//   SharedBuffer copy = memory.Lend(block);                   // for the computing side
//
// Who may read or write a block when is the program's: its operations name the blocks. Thread-safety:
// the engine's mutex guards all calls; the memory itself is used without it.
#ifndef RINGZERO_ZERO_BLOCK_MEMORY_H_
#define RINGZERO_ZERO_BLOCK_MEMORY_H_

#include <cstddef>
#include <functional>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "p2p/transport.h"
#include "sharding/block_table.h"
#include "zero/stamp.h"

namespace ringzero {

class BlockMemory {
 public:
  // Memory of at least own.bytes.
  using Allocator = std::function<absl::StatusOr<Buffer>(const OwnBlock& own)>;

  // All blocks of the table. Once.
  absl::Status Allocate(std::span<const OwnBlock> table, const Allocator& allocator);

  // From now on `cell` is a name for a block of another worker.
  void Borrow(const MemoryBlock& cell, MappedMemory memory);
  // From now on a block of ours has a stamp: behind its bytes there is memory for one.
  void AddStamp(const MemoryBlock& own);
  // None for what has none.
  Stamp StampAt(const MemoryBlock& block) const;

  bool Has(const MemoryBlock& block) const { return blocks_.contains(block); }
  // The block must be there: here and below. What holds the result keeps the memory, not its contents.
  SharedBuffer Lend(const MemoryBlock& block) const { return At(block).handle; }
  const std::byte* Read(const MemoryBlock& block) const { return At(block).data; }
  std::byte* Write(const MemoryBlock& block) { return At(block).data; }
  // All of it. A slot may be larger than what comes into it.
  std::span<std::byte> Bytes(const MemoryBlock& block) const {
    return {At(block).data, At(block).handle.size()};
  }

  // Allocated bytes by category of the forecast.
  const MemoryBytes& bytes() const { return bytes_; }
  void Clear() { blocks_.clear(); }

 private:
  struct Memory {
    std::byte* data = nullptr;
    SharedBuffer handle;
    Stamp stamp;
  };
  const Memory& At(const MemoryBlock& block) const;

  std::map<MemoryBlock, Memory> blocks_;
  MemoryBytes bytes_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_BLOCK_MEMORY_H_
