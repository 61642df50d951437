// Arenas for the blocks that others reach, and rings between workers that talk.
#include "zero/transport_needs.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/status.h"
#include "p2p/shm/shm_rings.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/program.h"
#include "zero/block_memory.h"

namespace ringzero {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t Pages(size_t bytes) {
  return (static_cast<int64_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Words go to whom it sends to, and the news that a block was taken to whom it receives from: what
// repeats is seen in the first laps of the first iterations.
absl::StatusOr<int64_t> RingBytes(const Plan& plan, WorkerId self) {
  Plan first = plan;
  first.laps = std::min(plan.laps, 3);
  IterationRange range = WholeRun(plan);
  range.end = std::min(range.end, Iteration(range.begin.value + 2));
  RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(first, self, range));
  std::set<int> peers;
  for (const Op& op : program.ops) {
    if (IsMessage(op.kind) && op.peer != self) peers.insert(op.peer.value);
  }
  return static_cast<int64_t>(peers.size() * ShmRings::kWords * sizeof(RingSlot));
}

}  // namespace

size_t ArenaBytes(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan, WorkerId self,
                                                int metrics_count) {
  TransportOptions options;
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
                      BlockTable(plan, self, {.metrics_count = metrics_count}));
  for (const OwnBlock& own : table) {
    if (own.access == Access::kPrivate) continue;
    const bool sums = UseOf(own.access) == MemoryUse::kSums;
    (sums ? options.sum_bytes : options.parameter_bytes) += ArenaBytes(own.bytes);
  }
  return options;
}

// Arenas as TransportNeeds sizes them, less the states, and what is private.
absl::StatusOr<int64_t> PoolBytes(const PoolRequest& request) {
  const Plan& plan = request.plan;
  if (!plan.exchange) return 0;
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
                      BlockTable(plan, request.self, {.metrics_count = request.metrics_count}));
  RZ_ASSIGN_OR_RETURN(const TransportOptions arenas,
                      TransportNeeds(plan, request.self, request.metrics_count));
  int64_t bytes = Pages(arenas.parameter_bytes) + Pages(arenas.sum_bytes);
  for (const OwnBlock& own : table) {
    const bool counted = own.category != nullptr;  // by the forecast
    if (own.access != Access::kPrivate) {
      bytes -= counted ? own.bytes : 0;
    } else {
      bytes += counted ? 0 : own.bytes;
    }
  }
  if (request.kind == PoolKind::kShared && plan.workers > 1) {
    RZ_ASSIGN_OR_RETURN(const int64_t rings, RingBytes(plan, request.self));
    bytes += rings;
  }
  return bytes;
}

}  // namespace ringzero
