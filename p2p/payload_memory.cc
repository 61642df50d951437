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

absl::StatusOr<std::shared_ptr<Arena>> MakeArena(WorkerId owner, const PayloadMemory& memory,
                                                 MemoryUse use, size_t bytes) {
  RZ_ASSIGN_OR_RETURN(Mapping data, memory.map(bytes));
  return Arena::Create(owner, use, std::move(data));
}

absl::StatusOr<Arenas> MakeArenas(WorkerId owner, const PayloadMemory& memory,
                                  const TransportOptions& options) {
  Arenas arenas;
  const std::array<size_t, kMemoryUses> bytes = {options.parameter_bytes, options.sum_bytes};
  for (int i = 0; i < kMemoryUses; ++i) {
    RZ_ASSIGN_OR_RETURN(arenas[i], MakeArena(owner, memory, static_cast<MemoryUse>(i), bytes[i]));
  }
  return arenas;
}

}  // namespace ringzero
