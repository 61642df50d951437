// LentUses: every use of a block that several workers use, and the proof that they cannot overlap.
//
//   uses.Note({home, block}, {.op = 17, .worker = 2, .writes = true});   // in the order of one run
//   RZ_RETURN_IF_ERROR(uses.Check(order, before, describe));
//
// Hazards order what one worker does with its blocks. Between workers only messages order anything.
#ifndef RINGZERO_SHARDING_LENT_USES_H_
#define RINGZERO_SHARDING_LENT_USES_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "sharding/linked_ring.h"
#include "sharding/loans.h"

namespace ringzero {

class LentUses {
 public:
  struct Use {
    int op;
    int worker;
    bool writes = false;
    bool computes = false;  // behind all that its worker has computed before
  };
  using Waits = std::vector<absl::InlinedVector<int, 3>>;  // by operation, what it waits for
  void Note(const LentBlock& block, const Use& use) { uses_[block].push_back(use); }

  // FailedPrecondition unless each use comes surely behind the last write of its block, and each
  // write behind all uses since. `order`: of all operations, as they ran. Of more than `small_ring`
  // operations it looks at sums alone, since that takes long: Verify proves besides that versions are
  // not overwritten (WaitGraph::CheckOverwrites).
  absl::Status Check(const std::vector<int>& order, const Waits& before,
                     const std::function<std::string(int op)>& describe,
                     int small_ring = kSmallRing) const;

 private:
  // The first must be done before the second may begin.
  using Pairs = std::vector<std::pair<int, int>>;
  static void AppendPairs(const std::vector<Use>& uses, Pairs& pairs);

  absl::flat_hash_map<LentBlock, std::vector<Use>> uses_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_LENT_USES_H_
