// Hazards: what waits for what inside one worker's program, from the blocks that operations name.
//
//   BlockNumbers numbers;
//   Hazards hazards;
//   for (const Instruction& op : program.ops) {
//     after.push_back(hazards.Append(op, numbers.Of(op.uses)));
//   }
//
// An operation waits for whoever wrote a block that it reads, and for all who wrote or read a block
// that it writes since it was last written. Besides, computing operations follow each other, and so
// do the sends of one channel. It knows nothing else of kinds.
#ifndef RINGZERO_SHARDING_HAZARDS_H_
#define RINGZERO_SHARDING_HAZARDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sharding/block_numbers.h"
#include "sharding/op.h"

namespace ringzero {

// Not thread-safe.
class Hazards {
 public:
  // The numbers, counted from the first Append, of what this operation waits for; ascending, no
  // duplicates.
  std::vector<int64_t> Append(const Op& op, std::span<const NumberedUse> uses);
  // The last to write it; -1: it is as it was at the start.
  int64_t WriterOf(int block) const;

 private:
  // What is in order: computing (no channel), or the sends of one channel. The last of a line stands
  // for all, so what is kept does not grow with the laps.
  using Line = std::pair<Channel, WorkerId>;
  struct Reader {
    std::optional<Line> line;
    int64_t op;
  };
  struct Access {
    int64_t writer = -1;
    std::vector<Reader> readers;  // since then
  };
  static std::optional<Line> LineOf(const Op& op);

  int64_t next_ = 0;
  std::map<Line, int64_t> last_;
  std::vector<Access> accesses_;  // by the number of the block
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_HAZARDS_H_
