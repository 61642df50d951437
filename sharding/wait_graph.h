// WaitGraph: everything that waits for something else, over all workers, as one directed graph.
//
//   WaitGraph graph(ring);
//   RZ_RETURN_IF_ERROR(graph.CheckProgress(plan.window));   // no cycle with W slots per channel
//   RZ_RETURN_IF_ERROR(graph.CheckOverwrites(plan));        // no update overwrites what is read
//
// A node is an operation that is done; for a send that means handed to the transport, for a receive
// delivered. Edges: what Link says (program order, data, pending, tokens, the buffer rule), send to
// receive, the FIFO of each channel, and credit: message i is delivered only when the slot of
// message i - W is free again. (A transport that counts free slots, whichever they are, waits at
// most as long.)
#ifndef RINGZERO_SHARDING_WAIT_GRAPH_H_
#define RINGZERO_SHARDING_WAIT_GRAPH_H_

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sharding/linked_ring.h"
#include "sharding/merged_order.h"
#include "sharding/plan.h"

namespace ringzero {

class WaitGraph {
 public:
  // `ring` must outlive this.
  explicit WaitGraph(const LinkedRing& ring) : WaitGraph(ring, Merging::kNone, MergedOrder()) {}
  // Besides, messages wait for each other as in `order`: with kLongHops an operation of the long
  // hops for the one before it at either of its workers; with kPerPair payload for the one before
  // it from the same neighbour, and its W slots are of all kinds together.
  WaitGraph(const LinkedRing& ring, Merging merging, const MergedOrder& order);

  // FailedPrecondition, spelling out one cycle of waits, if W = `window` slots per channel
  // deadlock.
  absl::Status CheckProgress(int window) const;

  // FailedPrecondition, naming both, if a worker may still read a version when its memory is
  // written, or reads it in an order that only chance decides. A relay needs no check of its own:
  // whoever it is for waits for it and reads. Holds for any window. Of more than `small_ring`
  // operations it goes through the graph only for reads that come behind their worker's last
  // gradient for that update. Then CheckMeaning must have found that updates wait for all gradients.
  absl::Status CheckOverwrites(const Plan& plan, int small_ring = kSmallRing) const;

  // The most messages on one channel: a larger window changes nothing.
  int LargestUsefulWindow() const;

 private:
  enum class Why { kAfter, kMessage, kOrder, kSlot, kMerged };
  struct Wait {
    int on;
    Why why;
  };
  // All waits of all nodes with W slots.
  struct Waits {
    std::vector<int> first;  // waits of node i: [first[i], first[i + 1])
    std::vector<Wait> all;
    std::span<const Wait> of(int node) const {
      return {all.data() + first[node], all.data() + first[node + 1]};
    }
  };
  struct Overwrite {
    int update;
    int reader;  // a worker's last
    Version version;
  };
  // Of one worker's reads.
  void FindOverwrites(const Plan& plan, int worker, int small_ring,
                      std::vector<Overwrite>& overwrites) const;
  Waits WaitsWith(int window) const;
  // Nodes in an order in which every wait comes first; shorter than the ring if there is a cycle.
  static std::vector<int> Order(const Waits& waits);
  std::string DescribeCycle(const Waits& waits, const std::vector<bool>& done) const;

  const LinkedRing& ring_;
  void ChainLongHops(const std::vector<int>& long_hops);

  std::vector<int> updates_;
  std::vector<std::pair<int, int>> place_;  // of a receive: its queue and its number in it
  // The receives that share W slots: a channel's, or a neighbour's.
  std::vector<std::vector<int>> credits_;
  // Of these: slots of held copies, which are besides W where kinds share them, else instead of it.
  std::vector<int> held_;
  std::vector<bool> besides_;
  int SlotsOf(int credit, int window) const {
    if (credit < 0) return 0;
    return held_[credit] + (besides_[credit] ? window : 0);
  }
  std::vector<std::pair<int, int>> credit_place_;
  std::vector<std::vector<int>> behind_;  // of a receive: what merged order has before it
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_WAIT_GRAPH_H_
