// The host's own.
#include "p2p/payload_memory.h"

#include <cstring>

namespace ringzero {

PayloadMemory HostMemory() {
  return {.kind = MemoryKind::kHost,
          .map = Mapping::Anonymous,
          .copy_in = [](std::byte* to, const std::byte* from, size_t bytes) {
            std::memcpy(to, from, bytes);
            return absl::OkStatus();
          }};
}

}  // namespace ringzero
