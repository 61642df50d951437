// Arenas as TransportNeeds sizes them, less the states; and rings between those who talk.
#include "zero/pool_memory.h"

#include <algorithm>
#include <set>

#include "base/status.h"
#include "p2p/shm/shm_rings.h"
#include "p2p/transport.h"
#include "sharding/block_table.h"
#include "sharding/program.h"
#include "zero/received_needs.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t Pages(size_t bytes) {
  return (static_cast<int64_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Words go to whom it sends to, and credit to whom it receives from: what repeats is seen in the
// first laps of the first iterations.
absl::StatusOr<int64_t> RingBytes(const Plan& plan, WorkerId self) {
  Plan first = plan;
  first.laps = std::min(plan.laps, 3);
  RZ_ASSIGN_OR_RETURN(
      const Program program,
      MakeProgram(first, self, {Iteration(0), Iteration(std::min(2, plan.iterations))}));
  std::set<int> peers;
  for (const Op& op : program.ops) {
    if (IsMessage(op.kind) && op.peer != self) peers.insert(op.peer.value);
  }
  return static_cast<int64_t>(peers.size() * ShmRings::kWords * sizeof(RingSlot));
}

// A lone worker has no transport: what it keeps for collections is on its heap.
int64_t KeptBytes(const Plan& plan, WorkerId self) {
  int64_t bytes = 0;
  for (const OwnBlock& own : OwnBlocks(plan, self, {})) {
    if (own.access == Access::kHandedOn) bytes += own.bytes;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> PoolBytes(const PoolRequest& request) {
  const Plan& plan = request.plan;
  if (request.kind == PoolKind::kNone || !plan.exchange) return 0;
  if (plan.workers == 1) return KeptBytes(plan, request.self);
  RZ_ASSIGN_OR_RETURN(const TransportOptions needs,
                      TransportNeeds(plan, request.self, request.metrics_count));
  const int64_t arenas = Pages(needs.parameter_bytes) + Pages(needs.sum_bytes);
  const MemoryBytes& states = request.states;
  int64_t bytes = arenas - states.sums;
  // Where everybody has all masters these do not travel, and lie on the heap.
  if (plan.zero_stage > 0) bytes -= states.masters + states.versions;
  if (request.kind == PoolKind::kShared) {
    RZ_ASSIGN_OR_RETURN(const int64_t rings, RingBytes(plan, request.self));
    bytes += rings;
  }
  if (request.kind == PoolKind::kReceived) {
    RZ_ASSIGN_OR_RETURN(const ReceivedBytes received,
                        ReceivedUse(plan, request.self, request.metrics_count));
    bytes += Pages(received.parameters) + Pages(received.sums);
  }
  return bytes;
}

}  // namespace ringzero
