// LinkedRing: the programs of all workers as one graph's nodes, every message joined to its
// receive.
//
//   RZ_ASSIGN_OR_RETURN(LinkedRing ring, LinkedRing::Write(plan));
//   ring.ops[i].after;      // numbers of operations of the whole ring
//   ring.partner[send];     // the receive at the other end
//
// What Verify checks and Simulate runs. Operation i belongs to worker w if begin[w] <= i <
// begin[w+1].
#ifndef RINGZERO_SHARDING_PROGRAM_LINKED_RING_H_
#define RINGZERO_SHARDING_PROGRAM_LINKED_RING_H_

#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "sharding/program/link.h"
#include "sharding/program/program.h"

namespace ringzero {

// The messages of one channel, in order.
struct MessageQueue {
  WorkerId from;
  WorkerId to;
  std::vector<int> sends;     // operation numbers
  std::vector<int> receives;  // as many
};

// Of more operations than these some proofs go by an argument, not pair by pair through the graph.
inline constexpr int kSmallRing = 10'000;

// A LinkedOp, but small: a ring of hundreds of workers has millions. Numbers count over the ring.
struct RingRead {
  StageId stage;
  Version version;
};
struct RingOp : Op {
  NumberedUses uses;
  bool loan = false;
  int worker = 0;
  int behind = kNoOp;  // as in LinkedOp
  // A send counts as done when it has begun. What waits for its end waits for its receive instead.
  // Besides what Link says: of a backward that begins a sum, what its add waits for; and the end of
  // the lap before which the worker does not know the operation.
  absl::InlinedVector<int, 4> after;
  absl::InlinedVector<RingRead, 1> reads;
};

// In pieces of the same size. A ring of hundreds of workers takes hundreds of MB, and the first
// touch of so much memory costs as much time as the linking. So what one ring leaves must fit the
// next, which may be longer: as one array it would not.
class RingOps {
 public:
  RingOp& operator[](size_t i) { return pieces_[i / kPiece][i % kPiece]; }
  const RingOp& operator[](size_t i) const { return pieces_[i / kPiece][i % kPiece]; }
  size_t size() const { return size_; }
  RingOp& emplace_back() {
    if (size_++ % kPiece == 0) {
      pieces_.emplace_back();
      if (size_ > kPiece) pieces_.back().reserve(kPiece);  // a small ring has a small one
    }
    return pieces_.back().emplace_back();
  }

 private:
  static constexpr size_t kPiece = 16384;  // about a huge page
  std::vector<std::vector<RingOp>> pieces_;
  size_t size_ = 0;
};

struct LinkedRing {
  RingOps ops;
  std::vector<int> begin = {0};                  // workers + 1 of them
  std::vector<std::vector<MemoryBlock>> blocks;  // by worker and number
  std::vector<int> partner;  // of a send its receive and the reverse; -1 for all else
  std::vector<MessageQueue> queues;
  int window = 0;  // with which blocks are named

  int count() const { return static_cast<int>(ops.size()); }
  const Op& op(int i) const { return ops[i]; }
  Instruction InstructionOf(int i) const;  // with the names of its operands
  int worker_of(int i) const { return ops[i].worker; }
  // "worker 2, line 14: \"F2 t0 l0 v-1\""; lines as in the text of a Program, where the first is a
  // head.
  std::string Describe(int i) const;

  // Of the plan's own programs, which are never there as a whole. `in_pieces`: as the engine links
  // them (Hazards). The error of CheckPlan, too.
  static absl::StatusOr<LinkedRing> Write(const Plan& plan, bool in_pieces = false);

  // What Write does when all operations are there. FailedPrecondition, naming worker, line and
  // operation, if sends and receives do not match one to one and in order with equal names.
  absl::Status JoinMessages(const Plan& plan);
  void Finish(const Plan& plan);  // what follows from links and queues
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_LINKED_RING_H_
