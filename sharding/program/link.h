// Link: what waits for what inside one worker's program.
//
//   Linker linker(plan, worker);
//   RZ_ASSIGN_OR_RETURN(std::vector<LinkedOp> linked, linker.Append(program.ops));
//
// The engine, Verify and Simulate all walk these edges; nobody else decides an order. An operation
// may begin when all operations in `after` are done and the one in `behind` has begun. A send is
// done when its payload has left its block, a receive when it is in its block. Numbers are
// positions in the program since the first Append; programs may be appended part by part
// (program.h).
#ifndef RINGZERO_SHARDING_PROGRAM_LINK_H_
#define RINGZERO_SHARDING_PROGRAM_LINK_H_

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

inline constexpr int64_t kNoOp = -1;

// What an operation waits for, by numbers counted from the first Append.
struct Before {
  std::vector<int64_t> after;  // must be done; ascending, no duplicates
  // Must have begun: of a message, the one before it on its channel; where states move in pieces,
  // what leaves the pieces (of a Fetch, the Fetch before it).
  int64_t behind = kNoOp;
};

// The waits that follow from the blocks which operations name.
//
//   BlockNumbers numbers;
//   Hazards hazards;
//   for (const Instruction& op : program.ops) {
//     Before before = hazards.Append(op, numbers.Of(op.uses));
//   }
//
// An operation waits for the last operation that wrote a block that it reads, and for all that
// wrote or read a block that it writes since it was last written. Besides, computing operations
// follow each other. Messages of one channel begin in order. It knows nothing else of kinds. Not
// thread-safe.
//
// In pieces, a state that is streamed follows its fetch, and its store the update, piece by piece:
// each begins when the one before it has begun, and a fetch when the fetch before it has begun. A
// proof that the run gets on takes them one after the other (docs/decisions/0056).
class Hazards {
 public:
  explicit Hazards(bool in_pieces = false) : in_pieces_(in_pieces) {}
  Before Append(const Op& op, std::span<const NumberedUse> uses);
  // The last to write it; kNoOp: it is as it was at the start.
  int64_t WriterOf(int block) const;

 private:
  struct Access {
    int64_t writer = kNoOp;
    std::vector<int64_t> readers;  // since then
    int64_t computing = kNoOp;     // the last reader that computes: it stands for all before it
    int64_t filler = kNoOp;        // in pieces: the last to write it anew
  };
  using Line = std::tuple<OpKind, Channel, WorkerId>;  // a channel's sends, or its receives

  const bool in_pieces_;
  int64_t next_ = 0;
  int64_t computed_ = kNoOp;
  std::map<Line, int64_t> messages_;  // the last ones
  std::vector<Access> accesses_;      // by the number of the block
};

// A version that an operation reads.
struct Read {
  StageId stage;
  Version version;
  MemoryBlock block;
};

struct LinkedOp : Before {
  Instruction op;
  NumberedUses uses;        // its operands
  std::vector<Read> reads;  // parameters: its own stage first, then stages tied to it
};

// Not thread-safe. FailedPrecondition, naming the operation, when something that it needs does not
// come before it: such a program is wrong.
class Linker {
 public:
  Linker(const Plan& plan, WorkerId self, bool in_pieces = false)
      : plan_(plan), self_(self), hazards_(in_pieces) {}
  Linker(const Linker&) = delete;
  absl::StatusOr<std::vector<LinkedOp>> Append(std::span<const Instruction> ops);
  // Of what was appended, by number.
  const std::vector<MemoryBlock>& blocks() const { return blocks_.blocks(); }

 private:
  absl::Status Resolve(LinkedOp& linked);
  bool IsThereAtTheStart(const MemoryBlock& block) const;
  void NoteRead(const MemoryBlock& block, LinkedOp& linked) const;
  StageId StageOfRead(const Op& op, size_t n) const;

  const Plan plan_;
  const UpdateRule rule_{plan_};
  const WorkerId self_;
  int64_t next_ = 0;  // number of the operation being linked
  BlockNumbers blocks_;
  Hazards hazards_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_LINK_H_
