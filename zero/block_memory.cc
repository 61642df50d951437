// Memory by the names of blocks.
#include "zero/block_memory.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace ringzero {

void BlockMemory::Borrow(const MemoryBlock& cell, MappedMemory memory) {
  std::byte* const data = memory.bytes.data();
  const Stamp stamp(data, memory.bytes.size());
  // It stays mapped while the computing side has a handle of it.
  SharedBuffer handle = BorrowBuffer(memory.bytes, std::move(memory.keeper)).Seal();
  blocks_[cell] = {data, std::move(handle), stamp};
}

void BlockMemory::AddStamp(const MemoryBlock& own) {
  Memory& memory = blocks_.at(own);
  memory.stamp = Stamp(memory.data, memory.handle.size());
}

Stamp BlockMemory::StampAt(const MemoryBlock& block) const {
  const auto found = blocks_.find(block);
  return found == blocks_.end() ? Stamp() : found->second.stamp;
}

absl::Status BlockMemory::Allocate(std::span<const OwnBlock> table, const Allocator& allocator) {
  for (const OwnBlock& own : table) {
    RZ_ASSIGN_OR_RETURN(Buffer memory, allocator(own));
    if (own.category != nullptr) bytes_.*own.category += static_cast<int64_t>(memory.size());
    std::byte* const data = memory.data();
    blocks_[own.block] = {data, std::move(memory).Seal(), Stamp()};
  }
  return absl::OkStatus();
}

const BlockMemory::Memory& BlockMemory::At(const MemoryBlock& block) const {
  const auto found = blocks_.find(block);
  RZ_CHECK(found != blocks_.end(), ToString(block));
  return found->second;
}

}  // namespace ringzero
