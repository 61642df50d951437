// WaitGraph: everything that waits for something else, over all workers, as one directed graph.
//
//   WaitGraph graph(ring);
//   RZ_RETURN_IF_ERROR(graph.CheckProgress());              // no cycle
//   RZ_RETURN_IF_ERROR(graph.CheckOverwrites(plan));        // no update overwrites what is read
//
// A node is an operation that is done; for a send that means handed to the transport, for a receive
// delivered. Edges: what Link says (data, slots, pending, tokens, the buffer rule), send to
// receive, and the FIFO of each channel.
#ifndef RINGZERO_SHARDING_CHECK_WAIT_GRAPH_H_
#define RINGZERO_SHARDING_CHECK_WAIT_GRAPH_H_

#include <compare>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"

namespace ringzero {

// For each of so many operations, those in whose lists it stands.
class Reverse {
 public:
  Reverse(int count, const auto& list_of) : first_(static_cast<size_t>(count) + 1) {
    for (int i = 0; i < count; ++i) {
      for (const int each : list_of(i)) ++first_[each + 1];
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    all_.resize(static_cast<size_t>(first_.back()));
    std::vector<int> next(first_.begin(), first_.end() - 1);
    for (int i = 0; i < count; ++i) {
      for (const int each : list_of(i)) all_[next[each]++] = i;
    }
  }
  std::span<const int> operator[](int i) const {
    return {all_.data() + first_[i], all_.data() + first_[i + 1]};
  }

 private:
  std::vector<int> first_, all_;
};

class WaitGraph {
 public:
  // `ring` must outlive this.
  explicit WaitGraph(const LinkedRing& ring);

  // FailedPrecondition, spelling out one cycle of waits, if there is one.
  absl::Status CheckProgress() const;

  // FailedPrecondition, naming both, if a worker may still read a version when its memory is
  // written, or reads it in an order that only chance decides. A relay needs no check of its own:
  // whoever it is for waits for it and reads. Holds for any window. Of more than `small_ring`
  // operations it goes through the graph only for reads that come behind their worker's last
  // gradient for that update. Then CheckMeaning must have found that updates wait for all
  // gradients.
  absl::Status CheckOverwrites(const Plan& plan, int small_ring = kSmallRing) const;

 private:
  enum class Why { kAfter, kMessage, kOrder };
  struct Wait {
    int on;
    Why why;
    operator int() const { return on; }  // NOLINT(google-explicit-constructor): for Reverse
  };
  // All waits of all nodes.
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
  Waits FindWaits() const;
  // Nodes in an order in which every wait comes first; shorter than the ring if there is a cycle.
  static std::vector<int> Order(const Waits& waits);
  std::string DescribeCycle(const Waits& waits, const std::vector<bool>& done) const;

  const LinkedRing& ring_;
  std::vector<int> updates_;
};

// The most messages on one channel of the plan's programs: more slots change nothing.
absl::StatusOr<int> LargestUsefulWindow(const Plan& plan);

// A block by its worker and its number there (block.h).
struct BlockPlace {
  int home = -1;
  int block = -1;
  auto operator<=>(const BlockPlace&) const = default;
};

// Every use of a block that several workers use, and the proof that they cannot overlap.
//
//   uses.Note({home, number}, {.op = 17, .worker = 2, .writes = true});   // as one run goes
//   RZ_RETURN_IF_ERROR(uses.Check(order, before, describe));
//
// Hazards order what one worker does with its blocks. Between workers only messages order anything.
class LentUses {
 public:
  struct Use {
    int op;
    int worker;
    bool writes = false;
    bool computes = false;  // behind all that its worker has computed before
  };
  using Waits = std::vector<absl::InlinedVector<int, 3>>;  // by operation, what it waits for
  void Note(const BlockPlace& place, const Use& use) { uses_[place].push_back(use); }

  // FailedPrecondition unless each use comes surely behind the last write of its block, and each
  // write behind all uses since. `order`: of all operations, as they ran.
  absl::Status Check(const std::vector<int>& order, const Waits& before,
                     const std::function<std::string(int op)>& describe) const;

 private:
  // The first must be done before the second may begin.
  using Pairs = std::vector<std::pair<int, int>>;
  static void AppendPairs(const std::vector<Use>& uses, Pairs& pairs);

  std::map<BlockPlace, std::vector<Use>> uses_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_CHECK_WAIT_GRAPH_H_
