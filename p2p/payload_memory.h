// PayloadMemory: where a transport's arenas lie, and how bytes get there and back.
//
//   const PayloadMemory memory = HostMemory();               // or MakeCudaMemory's
//   RZ_ASSIGN_OR_RETURN(auto sums, MakeArena(self, memory, MemoryUse::kSums, bytes));
//   RZ_RETURN_IF_ERROR(memory.copy(to, from, bytes));        // `to`: in an arena's block
//
// The functions are thread-safe; what they map outlives them.
#ifndef RINGZERO_P2P_PAYLOAD_MEMORY_H_
#define RINGZERO_P2P_PAYLOAD_MEMORY_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/mapping.h"
#include "p2p/transport.h"

namespace ringzero {

struct PayloadMemory {
  MemoryKind kind = MemoryKind::kHost;
  std::function<absl::StatusOr<Mapping>(size_t bytes)> map;
  // Copies between this memory and the host's, or within either; done when it returns.
  std::function<absl::Status(std::byte* to, const std::byte* from, size_t bytes)> copy;
};
PayloadMemory HostMemory();

// An arena there. ResourceExhausted when there is not enough.
absl::StatusOr<std::shared_ptr<Arena>> MakeArena(WorkerId owner, const PayloadMemory& memory,
                                                 MemoryUse use, size_t bytes);
// Both of a worker's.
absl::StatusOr<Arenas> MakeArenas(WorkerId owner, const PayloadMemory& memory,
                                  const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_PAYLOAD_MEMORY_H_
