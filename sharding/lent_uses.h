// LentUses: every use of a block that several workers use, and the proof that they cannot overlap.
//
//   uses.Note({home, number}, {.op = 17, .worker = 2, .writes = true});   // as one run goes
//   RZ_RETURN_IF_ERROR(uses.Check(order, before, describe));
//
// Hazards order what one worker does with its blocks. Between workers only messages order anything.
#ifndef RINGZERO_SHARDING_LENT_USES_H_
#define RINGZERO_SHARDING_LENT_USES_H_

#include <compare>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

namespace ringzero {

// A block by its worker and its number there (block_numbers.h).
struct BlockPlace {
  int home = -1;
  int block = -1;
  auto operator<=>(const BlockPlace&) const = default;
};

class LentUses {
 public:
  struct Use {
    int op;
    int worker;
    bool writes = false;
    bool computes = false;  // behind all that its worker has computed before
  };
  using Waits = std::vector<absl::InlinedVector<int, 3>>;  // by operation, what it waits for
  void Note(const BlockPlace& place, const Use& use);

  // FailedPrecondition unless each use comes surely behind the last write of its block, and each
  // write behind all uses since. `order`: of all operations, as they ran.
  absl::Status Check(const std::vector<int>& order, const Waits& before,
                     const std::function<std::string(int op)>& describe) const;

 private:
  // The first must be done before the second may begin.
  using Pairs = std::vector<std::pair<int, int>>;
  static void AppendPairs(const std::vector<Use>& uses, Pairs& pairs);

  std::vector<std::vector<std::vector<Use>>> uses_;  // by home and block
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_LENT_USES_H_
