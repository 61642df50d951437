// Memory by the names of blocks.
#include "zero/block_memory.h"

#include <iterator>
#include <vector>

#include "base/check.h"
#include "zero/transport_needs.h"

namespace ringzero {

void BlockMemory::Map(const MemoryBlock& block, MappedMemory memory) {
  std::byte* const data = memory.bytes.data();
  // It stays mapped while the computing side has a handle of it.
  SharedBuffer handle = Buffer(memory.bytes, std::move(memory.keeper)).Seal();
  blocks_[block] = {data, std::move(handle), Stamp()};
}

void BlockMemory::Borrow(const MemoryBlock& cell, MappedMemory memory) {
  Map(cell, std::move(memory));
  AddStamp(cell);
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

MemoryUse UseOf(Access access) {
  return access == Access::kLentToWrite ? MemoryUse::kSums : MemoryUse::kParameters;
}

absl::StatusOr<LentMemory::Place> LentMemory::PlaceOf(const LentBlock& lent) {
  std::map<MemoryBlock, Place>& places = places_[lent.home];
  if (places.empty()) {
    // As it is allocated: what is lent of the other blocks comes first among them. On one host
    // nothing is.
    std::vector<OwnBlock> table = StateBlocks(plan_, lent.home, {});
    if (plan_.hosts.size() > 1) {
      RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> others,
                          MessageBlocks(plan_, lent.home, /*metrics_count=*/1));
      std::ranges::copy_if(others, std::back_inserter(table),
                           [](const OwnBlock& own) { return IsLent(own.access); });
    }
    std::map<MemoryUse, size_t> used;
    for (const OwnBlock& own : table) {
      if (own.access == Access::kPrivate) continue;
      size_t& offset = used[UseOf(own.access)];
      places[own.block] = {UseOf(own.access), offset, static_cast<size_t>(own.bytes)};
      offset += ArenaBytes(own.bytes);
    }
  }
  const auto found = places.find(lent.block);
  RZ_CHECK(found != places.end(), ToString(lent.block));
  return found->second;
}

absl::StatusOr<MappedMemory> LentMemory::At(Transport& transport, const LentBlock& lent) {
  RZ_ASSIGN_OR_RETURN(const Place place, PlaceOf(lent));
  MappedMemory& memory = mapped_[{lent.home, place.use}];
  if (memory.bytes.empty()) memory = transport.MemoryOf(lent.home, place.use);
  // With the stamp behind it.
  const size_t end = place.offset + ArenaBytes(static_cast<int64_t>(place.bytes));
  if (end > memory.bytes.size()) {
    return Internal("worker ", lent.home.value, " lends ", ToString(lent.block), ", up to byte ",
                    end, " of its memory, but ", memory.bytes.size(),
                    " bytes of that are known here");
  }
  return MappedMemory{memory.bytes.subspan(place.offset, place.bytes), memory.keeper};
}

absl::Status LentMemory::Check(Transport& transport, const MemoryBlock& own,
                               const std::byte* data) {
  RZ_ASSIGN_OR_RETURN(const MappedMemory wanted, At(transport, {transport.self(), own}));
  if (wanted.bytes.data() == data) return absl::OkStatus();
  return Internal("block ", ToString(own), " does not lie where other workers look for it");
}

}  // namespace ringzero
