// MergedOrder: the order of messages on a transport with fewer FIFOs than the plan has channels.
//
//   RZ_ASSIGN_OR_RETURN(MergedOrder order, MakeMergedOrder(plan, ring));
//   RZ_RETURN_IF_ERROR(WaitGraph(ring, Merging::kLongHops, order).CheckProgress(plan.window));
//
//   LongHopOrderer hops(plan, self);   // the same order, an iteration at a time
//   RZ_ASSIGN_OR_RETURN(std::optional<MergedHop> next, hops.Next());
//
// The messages of one FIFO are sorted by the time when each is due, then by the receiver's program.
//
// Time is counted in costs, as in schedule.h. Micro-batch m begins at m·T/N. An operation of its
// lap begins when the costs before it have passed. A message is due
// - when its receiver begins the operation that needs it;
// - for sums, statistics and metrics: when the receiver's operation before it has ended;
// - for retires, reports to worker 0, squares and the norm: when it can be sent;
// - at the latest before the next iteration begins, if that is of dp: it waits for all updates.
// Equal times are sorted by micro-batch and operation.
//
// Stagger's tokens carry no payload. They are in no FIFO.
//
// Pure. All workers compute the same order.
#ifndef RINGZERO_SHARDING_MERGED_ORDER_H_
#define RINGZERO_SHARDING_MERGED_ORDER_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/linked_ring.h"
#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {

// Which messages share a FIFO.
enum class Merging {
  kNone,      // those of a channel
  kLongHops,  // besides, all that do not go to the right neighbour have one order, over all workers
  kPerPair,   // besides, all payload to the right neighbour has one FIFO
};
std::string ToString(Merging merging);  // "none", "long_hops", "per_pair"

// Whether a message goes over the FIFO that all workers share. With two workers none does.
bool IsLongHop(const Plan& plan, WorkerId from, WorkerId to);
bool HasPayload(Channel channel);

struct MergedHop {
  WorkerId from;
  WorkerId to;
  Op receive;
  // What it is sorted by.
  struct Due {
    __int128 time = 0;      // times N
    int64_t operation = 0;  // the micro-batch's number times 2S + 1, and q
    int after = 0;          // of equal ones: what waits for others of them
    int receiver = 0;
    int iteration = 0;
    int line = 0;  // in its receiver's program of that iteration
    auto operator<=>(const Due&) const = default;
  } due;
};

// The messages that `worker` receives in one iteration, in its program's order.
absl::StatusOr<std::vector<MergedHop>> ReceivesOf(const Plan& plan, WorkerId worker, Iteration t);

struct MergedOrder {
  // Receives, as numbers of the ring's operations.
  std::vector<std::vector<int>> pairs;  // [w]: from worker w to its right neighbour
  std::vector<int> long_hops;
};
absl::StatusOr<MergedOrder> MakeMergedOrder(const Plan& plan, const LinkedRing& ring);

// FailedPrecondition, naming the message, unless `order` has each payload's receive once, and those
// of a channel in the channel's order.
absl::Status CheckMergedOrder(const Plan& plan, const LinkedRing& ring, const MergedOrder& order);

// The long hops of one worker, or of all (kNoWorker), without ever holding more than two
// iterations. Not thread-safe.
class LongHopOrderer {
 public:
  LongHopOrderer(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {}
  // Nothing after the last.
  absl::StatusOr<std::optional<MergedHop>> Next();

 private:
  absl::Status AddIteration();

  const Plan plan_;
  const WorkerId self_;
  int added_ = plan_.first_iteration;  // the next iteration
  std::vector<MergedHop> ready_;       // sorted, the first last
  std::vector<MergedHop> later_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_MERGED_ORDER_H_
