// Hazards: what waits for what inside one worker's program, from the blocks that operations name.
//
//   BlockNumbers numbers;
//   Hazards hazards;
//   for (const Instruction& op : program.ops) {
//     Before before = hazards.Append(op, numbers.Of(op.uses));
//   }
//
// An operation waits for the last operation that wrote a block that it reads, and for all that wrote
// or read a block that it writes since it was last written. Besides, computing operations follow
// each other. Messages of one channel begin in order. It knows nothing else of kinds.
#ifndef RINGZERO_SHARDING_HAZARDS_H_
#define RINGZERO_SHARDING_HAZARDS_H_

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "sharding/block_numbers.h"
#include "sharding/op.h"

namespace ringzero {

// What an operation waits for, by numbers counted from the first Append.
struct Before {
  std::vector<int64_t> after;  // must be done; ascending, no duplicates
  int64_t behind = -1;         // of a message, the one before it on its channel: must have begun
};

// Not thread-safe.
class Hazards {
 public:
  Before Append(const Op& op, std::span<const NumberedUse> uses);
  // The last to write it; -1: it is as it was at the start.
  int64_t WriterOf(int block) const;

 private:
  struct Access {
    int64_t writer = -1;
    std::vector<int64_t> readers;  // since then
    int64_t computing = -1;        // the last reader that computes: it stands for all before it
  };
  using Line = std::tuple<OpKind, Channel, WorkerId>;  // a channel's sends, or its receives

  int64_t next_ = 0;
  int64_t computed_ = -1;
  std::map<Line, int64_t> messages_;  // the last ones
  std::vector<Access> accesses_;      // by the number of the block
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_HAZARDS_H_
