// Gate: the computing side of the engine: what the computing thread calls, in the program's order
// (zero/engine.h). It waits for what its operations need, and leaves what they make.
//
// Methods take the executor's lock themselves.
#ifndef RINGZERO_ZERO_ENGINE_GATE_H_
#define RINGZERO_ZERO_ENGINE_GATE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/engine/executor.h"
#include "zero/engine/messages.h"
#include "zero/engine/statistics.h"
#include "zero/engine/sums.h"

namespace ringzero {

class Gate {
 public:
  // All must outlive this.
  Gate(Executor& executor, const Messages& messages, Statistics& statistics, Sums& sums,
       const BlockMemory& blocks)
      : executor_(executor),
        messages_(messages),
        statistics_(statistics),
        sums_(sums),
        blocks_(blocks) {}

  // As in Engine.
  absl::StatusOr<LapTask> NextLap();
  absl::StatusOr<std::vector<StageCopy>> Begin(OpKind kind, StageId stage);
  absl::Status EndForward(StageId stage, Buffer statistics);
  std::byte* OpenSum(StageId stage);
  absl::Status EndBackward(StageId stage, StageGradient gradient);
  absl::Status EndMicroBatch(const std::vector<double>& metrics);
  absl::Status SkipMicroBatch(const std::vector<double>& metrics);
  absl::StatusOr<EvaluationCopy> BeginEvaluation(StageId stage);
  absl::Status EndEvaluation(StageId stage) { return End(OpKind::kEvaluate, stage, nullptr); }
  absl::StatusOr<CollectedPart> Collect();
  absl::Status EndCollect();
  absl::StatusOr<Version> Ask(RunRequest request);

  // For the next operation to be known, or the end. With the lock held.
  absl::Status WaitForNext(Executor::Lock& lock);

 private:
  using Lock = Executor::Lock;
  using Writer = Executor::Writer;

  // With the lock held:
  // The next operation; FailedPrecondition if it is not (kind, stage).
  absl::StatusOr<int64_t> Expect(Lock& lock, OpKind kind, StageId stage);
  // Then CheckReads.
  absl::Status WaitUntilReady(Lock& lock, int64_t op);
  // For the memory of the sum that the backward `op` begins.
  absl::Status WaitForSumMemory(Lock& lock, int64_t op);
  // Until `missing` finds no operation that `op` waits for.
  absl::Status WaitWhile(Lock& lock, int64_t op, const std::function<int64_t()>& missing);
  // Ends the run if what it reads was overwritten.
  absl::Status CheckReads(int64_t op);
  double* WaitCounter(int64_t op);
  void NoteBegin();
  bool is_over() const { return executor_.guarded().computing.next.empty(); }
  int64_t front() const { return executor_.guarded().computing.next.front(); }

  // The next operation, or Op() if the program is over; it takes the lock.
  Op Next() const;
  absl::Status End(OpKind kind, StageId stage, const std::function<void(int64_t)>& keep);

  Executor& executor_;
  const Messages& messages_;
  Statistics& statistics_;
  Sums& sums_;
  const BlockMemory& blocks_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_GATE_H_
