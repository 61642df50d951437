// ProgramState: which operations of the program are done, which may start, and what each one holds.
//
//   RZ_RETURN_IF_ERROR(state.Append(program.ops));   // returns what may start at once
//   std::vector<int64_t> ready = state.Complete(op);  // what may start now
//
// Operations are named by their number since the start (sharding/link.h). Finished ones at the
// front are forgotten. Not thread-safe: the engine guards it with its mutex. It decides nothing.
//
// A message begins before it is done: its block is posted, or its payload is on its way.
#ifndef RINGZERO_ZERO_PROGRAM_STATE_H_
#define RINGZERO_ZERO_PROGRAM_STATE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/link.h"

namespace ringzero {

struct OpState {
  LinkedOp linked;
  int waiting = 0;      // operations in linked.after that are not done, and one that has not begun
  bool arrived = true;  // of a word that is received: it is here
  bool begun = false;
  bool done = false;
  std::vector<int64_t> next;      // operations that wait for this one's end
  std::optional<int64_t> behind;  // and one that waits for its beginning
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

  // Marks `op` begun, or done. Returns the operations that became ready, ascending.
  std::vector<int64_t> Begin(int64_t op);
  std::vector<int64_t> Complete(int64_t op);

  bool AllDone() const { return undone_ == 0; }
  // The first operation that `op` waits for (itself, if its word is missing), but for `aside`; kNoOp
  // when it is ready.
  int64_t FirstUnfinished(int64_t op, int64_t aside = kNoOp) const;
  // Where `op`'s waits begin: an operation that misses its message, or that is ready and not done.
  int64_t Root(int64_t op) const;
  int64_t FirstUndone() const;  // kNoOp: all are done
  // The kSend of a message; kNoOp when it is not appended yet, or forgotten.
  int64_t FindSend(WorkerId to, MessageKey message) const;
  // Up to `limit` operations that are not done, for errors.
  std::string Unfinished(int limit) const;
  void Clear();

 private:
  // `op` waits for one less.
  void Free(int64_t op, std::vector<int64_t>& ready);

  Linker linker_;
  int64_t base_ = 0;
  int64_t undone_ = 0;
  std::deque<OpState> ops_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_PROGRAM_STATE_H_
