// Offsets of lent blocks: a home allocates them first, in the order of its table.
#include "zero/lent_memory.h"

#include "base/check.h"
#include "base/status.h"
#include "zero/transport_needs.h"

namespace ringzero {

MemoryUse UseOf(Access access) {
  return access == Access::kLentToWrite ? MemoryUse::kSums : MemoryUse::kParameters;
}

const LentMemory::Place& LentMemory::PlaceOf(const LentBlock& lent) {
  std::map<MemoryBlock, Place>& places = places_[lent.home];
  if (places.empty()) {
    std::map<MemoryUse, size_t> used;
    for (const OwnBlock& own : StateBlocks(plan_, lent.home, {})) {
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
  const Place& place = PlaceOf(lent);
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

absl::StatusOr<MappedMemory> LentMemory::Of(Transport& transport, const Op& loan) {
  return At(transport, HomeOf(plan_, loan));
}

absl::Status LentMemory::Check(Transport& transport, const MemoryBlock& own,
                               const std::byte* data) {
  RZ_ASSIGN_OR_RETURN(const MappedMemory wanted, At(transport, {transport.self(), own}));
  if (wanted.bytes.data() == data) return absl::OkStatus();
  return Internal("block ", ToString(own), " does not lie where other workers look for it");
}

}  // namespace ringzero
