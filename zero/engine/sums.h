// Sums: gradients of this worker, and the travelling sums that they are added to.
//
//   RZ_RETURN_IF_ERROR(sums.WaitForMemory(lock, backward));   // before a backward begins a sum
//   std::byte* open = sums.Open(backward);                    // products may go there at once
//   sums.Keep(backward, gradient);                            // what is left for the add
//   sums.StartAdd(add);
//
// A stage has memory for one sum at a time. A lone worker's is a block of its own; with several it
// comes and goes with messages. With the executor's lock held, unless a method says otherwise.
#ifndef RINGZERO_ZERO_ENGINE_SUMS_H_
#define RINGZERO_ZERO_ENGINE_SUMS_H_

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/status.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"

namespace ringzero {

class Sums {
 public:
  // Both must outlive this.
  Sums(Executor& executor, BlockMemory& blocks) : executor_(executor), blocks_(blocks) {}

  // Makes the memory of all sums that this worker begins and hands on, so that it does not depend on
  // timing how many there are.
  absl::Status Reserve();

  // The backward `op`, if its gradient begins a sum: waits for the memory of that sum.
  absl::Status WaitForMemory(Executor::Lock& lock, int64_t op);
  // Where the sum of the backward `op` lies, if it is here (Engine::OpenSum); else null.
  std::byte* Open(int64_t op);
  // The gradient of the backward `op`; dropped if no add takes it.
  void Keep(int64_t op, StageGradient gradient);
  void StartAdd(int64_t op);

  // The block of ours that an operation's sum lies in; null: its memory comes with a message.
  const MemoryBlock* Own(const Instruction& op) const;
  // The complete sum that `linked` reads and leaves where it is, or takes over.
  const std::byte* Complete(const LinkedOp& linked) const;

  // That the sum which an update, its squares or a Keep reads is the complete one of its iteration.
  // An update asks before it reads and after; the others ask after.
  absl::Status CheckComplete(const Instruction& reader) const;
  // The last to use it here is done: the next sum may begin in its memory.
  void Free(const Instruction& last);

  // The worker that updates last from a stage's sum, other than the one that began it: its update
  // frees the sum's memory.
  WorkerId LastToUpdate(StageId stage) const;
  void Clear();

 private:
  using Place = std::tuple<int, int, int>;  // stage, iteration, lap
  static Place PlaceOf(const Op& op) { return {op.stage.value, op.iteration.value, op.lap.value}; }
  // The add of the backward `op`; kNoOp: it has none.
  int64_t AddOf(int64_t op) const;
  // Whether nothing but its backward keeps an add from starting.
  bool OnlyBackwardIsMissing(int64_t add) const { return executor_.state().at(add).waiting <= 1; }
  int64_t BytesOf(StageId stage, const StageGradient& gradient) const;
  // What a lent sum's stamp says: that the sum of iteration t may begin there; that it has begun,
  // and has `count` gradients.
  int64_t FreeFor(int t) const;
  int64_t Begun(int t, int count) const { return FreeFor(t) + 1 + count; }
  int PerIteration() const { return executor_.plan().workers * executor_.plan().laps; }

  Executor& executor_;
  BlockMemory& blocks_;
  std::map<Place, StageGradient> gradients_;  // until added
  int64_t gradient_bytes_ = 0;                // of these, and of those being added
  std::map<Place, Buffer> started_;           // from their first backward on, until its add
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_SUMS_H_
