// ProgramState: which operations of the program are done, which may start, and what each one holds.
//
//   RZ_RETURN_IF_ERROR(state.Append(program.ops));   // returns what may start at once
//   std::vector<int64_t> ready = state.Complete(op);  // what may start now
//
// Operations are named by their number since the start (sharding/link.h). Finished ones at the
// front are forgotten. Not thread-safe: the engine guards it with its mutex. It decides nothing.
#ifndef RINGZERO_ZERO_PROGRAM_STATE_H_
#define RINGZERO_ZERO_PROGRAM_STATE_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/link.h"

namespace ringzero {

struct OpState {
  LinkedOp linked;
  int waiting = 0;      // operations in linked.after that are not done
  bool arrived = true;  // kReceive: its message is here
  bool done = false;
  int users_left = 0;
  std::vector<int64_t> next;  // operations that wait for this one
  SharedBuffer shared;        // a copy that is not held, a finished sum of all, a snapshot to send
  Buffer owned;  // a sum, statistics or metrics; taken over by the operation that `takes` it
};

class ProgramState {
 public:
  ProgramState(const Plan& plan, WorkerId self) : linker_(plan, self) {}

  // The numbers of the appended operations are [first returned, end()).
  absl::StatusOr<int64_t> Append(std::span<const Instruction> ops);
  int64_t end() const { return base_ + known(); }
  int64_t known() const { return static_cast<int64_t>(ops_.size()); }  // not forgotten

  OpState& at(int64_t op) { return ops_[op - base_]; }
  const OpState& at(int64_t op) const { return ops_[op - base_]; }
  bool IsDone(int64_t op) const { return op < base_ || at(op).done; }
  bool IsReady(int64_t op) const { return at(op).waiting == 0 && at(op).arrived; }

  // Marks `op` done, drops the parameters it read, and returns the operations that became ready,
  // ascending.
  std::vector<int64_t> Complete(int64_t op);
  // One user of `shared` less; the last one drops it.
  void DropUse(int64_t op);

  bool AllDone() const { return undone_ == 0; }
  // The first operation in `op`'s after-list (or itself, if its message is missing) that is not
  // done; kNoOp when it is ready.
  int64_t FirstUnfinished(int64_t op) const;
  // Where `op`'s waits begin: an operation that misses its message, or that is ready and not done.
  int64_t Root(int64_t op) const;
  int64_t FirstUndone() const;  // kNoOp: all are done
  // The kSend of a message; kNoOp when it is not appended yet, or forgotten.
  int64_t FindSend(WorkerId to, MessageKey message) const;
  int64_t FindUpdate(StageId stage, Iteration iteration) const;  // likewise the kUpdate
  // Up to `limit` operations that are not done, for errors.
  std::string Unfinished(int limit) const;
  void Clear();

 private:
  void Forget();

  Linker linker_;
  int64_t base_ = 0;
  int64_t undone_ = 0;
  std::deque<OpState> ops_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_PROGRAM_STATE_H_
