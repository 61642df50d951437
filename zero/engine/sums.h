// Sums: gradients of this worker, and the travelling sums that they are added to.
// With the executor's lock held, unless a method says otherwise.
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

  // Whether the gradient of the backward `op` begins a sum. Then: what keeps the sum's memory, but
  // for the backward itself; kNoOp: it is free. Begin clears it, and ends the run if it holds
  // something else than the plan says.
  bool Begins(int64_t op) const;
  int64_t Missing(int64_t op) const;
  absl::Status Begin(int64_t op);
  // Where the sum of the backward `op` lies, if it is here (Engine::OpenSum); else null.
  std::byte* Open(int64_t op);
  // The gradient of the backward `op`; dropped if no add takes it.
  void Keep(int64_t op, StageGradient gradient);
  void StartAdd(int64_t op);

  // Where the sum lies that an operation works on.
  static const MemoryBlock& SumOf(const Instruction& op);
  const std::byte* Read(const Instruction& op) const { return blocks_.Read(SumOf(op)); }

  // That the sum which an update, its squares or a Keep reads is the complete one of its iteration.
  // An update asks before it reads and after; the others ask after.
  absl::Status CheckComplete(const Instruction& reader) const;
  // Whether the run goes on, with that sum complete; if it is not, the run ends.
  bool GoesOnComplete(const Instruction& reader);
  // The last to use it here is done: the next sum may begin in its memory.
  void Free(const Instruction& last);

  // Before the run: sums that are lent from here may begin.
  void Initialize();
  void Clear() { gradients_.clear(); }

 private:
  using Place = std::tuple<int, int, int>;  // stage, iteration, lap
  static Place PlaceOf(const Op& op) { return {op.stage.value, op.iteration.value, op.lap.value}; }
  // The add of the backward `op`; kNoOp: it has none.
  int64_t AddOf(int64_t op) const;
  int64_t BytesOf(StageId stage, const StageGradient& gradient) const;

  Executor& executor_;
  BlockMemory& blocks_;
  std::map<Place, StageGradient> gradients_;  // until added
  int64_t gradient_bytes_ = 0;                // of these, and of those being added
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_SUMS_H_
