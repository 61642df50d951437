// Arenas as TransportNeeds sizes them, less the states; what is private; and rings between those who
// talk.
#include "zero/pool_memory.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/status.h"
#include "p2p/shm/shm_rings.h"
#include "sharding/block_table.h"
#include "sharding/program.h"
#include "zero/block_memory.h"
#include "zero/transport_needs.h"

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

absl::StatusOr<int64_t> PoolBytes(const PoolRequest& request) {
  const Plan& plan = request.plan;
  if (request.kind == PoolKind::kNone || !plan.exchange) return 0;
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
                      BlockTable(plan, request.self, {.metrics_count = request.metrics_count}));
  size_t parameters = 0, sums = 0;
  int64_t bytes = 0;
  for (const OwnBlock& own : table) {
    const bool counted = own.category != nullptr;  // by the forecast
    if (own.access == Access::kPrivate) {
      bytes += counted ? 0 : own.bytes;
      continue;
    }
    (UseOf(own.access) == MemoryUse::kSums ? sums : parameters) += ArenaBytes(own.bytes);
    bytes -= counted ? own.bytes : 0;
  }
  bytes += Pages(parameters) + Pages(sums);
  if (request.kind == PoolKind::kShared && plan.workers > 1) {
    RZ_ASSIGN_OR_RETURN(const int64_t rings, RingBytes(plan, request.self));
    bytes += rings;
  }
  return bytes;
}

}  // namespace ringzero
