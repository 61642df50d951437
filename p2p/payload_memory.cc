// The host's own memory, and arenas in any.
#include "p2p/payload_memory.h"

#include <cstring>
#include <utility>

#include "base/status.h"

namespace ringzero {

PayloadMemory HostMemory() {
  return {.kind = MemoryKind::kHost,
          .map = Mapping::Anonymous,
          .copy = [](std::byte* to, const std::byte* from, size_t bytes) {
            std::memcpy(to, from, bytes);
            return absl::OkStatus();
          }};
}

absl::StatusOr<ArenaPtr> MakeArena(WorkerId owner, const PayloadMemory& memory, MemoryUse use,
                                   size_t bytes) {
  RZ_ASSIGN_OR_RETURN(Mapping data, memory.map(bytes));
  RZ_ASSIGN_OR_RETURN(Mapping counts, Mapping::Anonymous(Arena::CountBytes(bytes)));
  return ArenaPtr(Arena::Create(owner, use, std::move(data), std::move(counts)));
}

}  // namespace ringzero
