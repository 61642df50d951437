// The engine's inside: one mutex, the program's state, and what acts on it.
//
// engine.cc           the computing thread's calls
// engine_run.cc       everything else: messages and work, driven by operations becoming ready
// engine_work.cc      the work itself, on the pool: adds, updates, statistics, folds
// engine_samples.cc   micro-batches with fewer samples, or none
// engine_sums.cc      memory of sums and gradients
// engine_clip.cc      squares of sums, norms, and what follows: clipping, the loss scale, skipping
// engine_collect.cc   collections: both
// engine_flight.cc    what goes on, as a record for a file
// engine_blame.cc     whose fault it is that a wait takes too long
#ifndef RINGZERO_ZERO_ENGINE_IMPL_H_
#define RINGZERO_ZERO_ENGINE_IMPL_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "p2p/deadline.h"
#include "sharding/program.h"
#include "zero/blame.h"
#include "zero/block_memory.h"
#include "zero/engine.h"
#include "zero/loss_scale.h"
#include "zero/owned_stages.h"
#include "zero/program_state.h"
#include "zero/worker_pool.h"

namespace ringzero {

class Engine::Impl {
 public:
  explicit Impl(EngineOptions options);
  ~Impl();

  absl::Status Start();

  // Computing thread (engine.cc).
  absl::StatusOr<LapTask> NextLap();
  absl::StatusOr<std::vector<StageCopy>> Begin(OpKind kind, StageId stage);
  absl::StatusOr<EvaluationCopy> BeginEvaluation(StageId stage);
  absl::Status End(OpKind kind, StageId stage, const std::function<void(const Op&)>& keep);
  absl::Status EndForward(StageId stage, Buffer statistics);
  std::byte* OpenSum(StageId stage);
  absl::Status EndBackward(StageId stage, StageGradient gradient);
  absl::Status EndMicroBatch(const std::vector<double>& metrics);
  absl::Status SkipMicroBatch(const std::vector<double>& metrics);  // engine_samples.cc
  absl::Status Finish();
  // Likewise (engine_collect.cc).
  absl::StatusOr<CollectedPart> Collect();
  absl::Status EndCollect();

  // Any thread.
  void Abort(const absl::Status& why);
  double GradientSquares(Iteration t) const;
  std::optional<StageId> NonfiniteStage(Iteration t) const;
  double LossScaleOf(Iteration t) const;
  absl::Status status() const;
  EngineStats stats() const;
  std::string DebugString() const;
  const FlightRecorder& recorder() const { return recorder_; }
  FlightRecord Flight(const std::string& why) const;
  void MeasureClock();
  std::optional<ClockOffset> clock_offset() const;

  const EngineOptions& options() const { return options_; }

 private:
  using Place = std::tuple<int, int, int>;  // stage, iteration, lap
  using Lock = std::unique_lock<std::mutex>;
  static Place PlaceOf(const Op& op) { return {op.stage.value, op.iteration.value, op.lap.value}; }

  // The computing side's next operation; FailedPrecondition if it is not (kind, stage).
  absl::StatusOr<int64_t> Expect(OpKind kind, StageId stage);
  StageId NextStage() const;  // of the computing side's next operation
  absl::Status WaitUntilReady(Lock& lock, int64_t op);
  // Waits for `done`, at most wait_timeout, looking again every `look` at least; `what` names the
  // wait in errors.
  absl::Status WaitFor(Lock& lock, const std::string& what, const std::function<bool()>& done,
                       const std::function<void(double)>& waited,
                       std::chrono::microseconds look = kAwakeLook);
  // engine_samples.cc; any thread.
  int NumberOf(const Op& op) const;  // of a lap's operation: its micro-batch's in the iteration
  // Whether that has no samples. Of computing in training laps only.
  bool IsMissing(const Op& op) const;
  bool NextIsMissing() const;  // the computing side's next operation; takes the lock
  float WeightOfMicroBatch(const Op& op) const;

  // engine_sums.cc; with mutex_ held but BytesOf (any thread's).
  // The backward `op`, if its gradient begins a sum: waits for the memory of that sum. A stage has
  // memory for one.
  absl::Status WaitForSumMemory(Lock& lock, int64_t op);
  // The add of the backward `op`; kNoOp: it has none.
  int64_t AddOf(int64_t op) const;
  // Whether nothing but the backward `op` keeps its add from starting.
  bool OnlyBackwardIsMissing(int64_t add) const { return state_.at(add).waiting <= 1; }
  // The block of ours that an operation's sum lies in; null: its memory comes with a message.
  const MemoryBlock* OwnSum(const Instruction& op) const;
  // The complete sum that `linked` reads and leaves where it is, or takes over.
  const std::byte* CompleteSum(const LinkedOp& linked) const;
  // Makes the memory of all sums that this worker begins and hands on, so that it does not depend on
  // timing how many there are.
  absl::Status ReserveSums();
  int64_t BytesOf(StageId stage, const StageGradient& gradient) const;
  std::vector<StageCopy> CopiesOf(const LinkedOp& linked) const;
  SharedBuffer CopyOf(const Read& read) const;
  double* WaitCounter(int64_t op);

  using Writer = FlightRecorder::Writer;
  void SetBegun() {
    begun_ = true;
    recorder_.Record(Writer::kComputing,
                     {EventKind::kBegin, state_.at(compute_.front()).linked.op});
    computing_since_ = std::chrono::steady_clock::now();
  }

  // engine_flight.cc; with mutex_ held but the first two, which take it themselves.
  void AskClock(int times);
  static std::string AnswerClock();
  void DescribeWaits(FlightRecord& record) const;
  // The number of the message of `op` on its channel, by what has been counted so far.
  static uint32_t NextMessage(std::vector<uint32_t>& counts, const Op& op);

  // engine_blame.cc; all with mutex_ held but AnswerQuestion (the message thread's).
  void AnswerQuestions();  // from now on
  std::string AnswerQuestion(WorkerId from, const std::string& text);
  // DeadlineExceeded that names the end of the chain of waits. `waited`: "waited 600 s for …";
  // `mine`: what this worker waits for. The lock is released while others are asked.
  absl::Status Blame(Lock& lock, const std::string& waited, BlameAnswer mine);
  BlameAnswer AskWorker(Lock& lock, const BlameStep& step);
  // Waits for `done`, which only `worker` can bring about; `what` is it that is missed.
  absl::Status AwaitWorker(Lock& lock, WorkerId worker, const std::string& what,
                           const std::function<bool()>& done);
  BlameAnswer AnswerTo(const BlameQuestion& question) const;
  BlameAnswer WhyNotSent(WorkerId to, MessageKey message) const;
  // Of those, but whoever began it, who update from a sum.
  WorkerId LastToUpdate(StageId stage) const;
  BlameAnswer WhyNotUpdated(StageId stage, Iteration iteration) const;
  BlameAnswer WhyNotDone(int64_t op) const;
  BlameAnswer WhatItDoes() const;
  bool IsAppended(const Op& named) const;
  std::string ComputingThread() const;

  // engine_run.cc; all with mutex_ held.
  // Keeps the program known as far as kLapsAhead says.
  absl::Status AppendParts();
  absl::Status PostReceive(int64_t op);
  // Whether a received copy stays until its kRelease, and where.
  bool IsHeld(const Op& message) const;
  SharedBuffer& HeldCopy(const Op& op);
  // Frees the slots of messages that are not waited for in their channel's order.
  absl::Status KeepArrival(OpState& state);
  void Advance(std::vector<int64_t> ready);
  void Complete(int64_t op) { Advance(state_.Complete(op)); }
  void Act(int64_t op, std::vector<int64_t>& ready);
  absl::Status Send(int64_t op);
  void Fail(const absl::Status& why);
  void FailAt(const Op& op, const absl::Status& why);
  Buffer TakeOver(int64_t op);  // the buffer of the operation that `op` takes
  size_t MessageBytes(const Op& op) const;
  std::string Where(const Op& op) const;

  // engine_work.cc; all with mutex_ held but AllocateSum (any thread's).
  void SubmitAdd(int64_t op);
  void SubmitUpdate(int64_t op);
  void SubmitApply(int64_t op);
  void SubmitSnapshot(int64_t op);
  void SubmitFold(int64_t op);
  void SubmitReport(int64_t op);
  void SubmitKeep(int64_t op);  // engine_collect.cc
  // engine_clip.cc; all with mutex_ held.
  void SubmitSquares(int64_t op);
  void NoteSquares(Iteration t, StageId stage, std::vector<double> squares);
  absl::Status FoldNorm(Iteration t);
  // The global norm is known, and with it whether the iteration overflowed.
  absl::Status NoteNorm(Iteration t, double norm);
  absl::StatusOr<Buffer> NormMessage(const Op& op);
  absl::Status KeepNorm(OpState& received);
  UpdateTerms TermsOf(const Op& update) const;
  float ClipOf(const Op& update) const;
  double ScaleOf(Iteration t) const;
  // From a sum to the averaged gradient of the loss itself.
  double SumDivisor(Iteration t) const;
  // The norm of a stage's averaged gradient; of its parameters without one: 0.
  double StageNorm(Iteration t, StageId stage) const;
  double SquaresHere(Iteration t) const;   // GradientSquares before Finish
  absl::Status GatherSquares(Lock& lock);  // at the end, into last_squares_
  absl::Status TellSquares(Lock& lock, const std::string& mine);
  std::string TakeSquares(WorkerId from, absl::string_view numbers);  // takes the lock
  // On the pool's thread: runs `work`, then completes `op`.
  void RunOnPool(int64_t op, std::function<absl::Status()> work);
  // `work`, counted for `op` if costs are.
  template <typename Work>
  auto Costed(const Op& op, int count, const Work& work);
  absl::StatusOr<Buffer> AllocateSum(int64_t bytes);

  EngineOptions options_;
  const Plan& plan_;
  BlockMemory blocks_;
  OwnedStages owned_;

  FlightRecorder recorder_;  // of its writers kMessages is whoever holds mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ProgramState state_;
  absl::Status error_;
  std::optional<ProgramWriter> program_;  // from Start on
  // To append; nothing: all are.
  std::optional<ProgramPart> next_part() const {
    return program_.has_value() ? program_->part() : ProgramPart();
  }
  // Where those end that are appended and not behind the computing thread.
  std::deque<int64_t> part_ends_;
  std::deque<int64_t> compute_;  // the computing operations to come, in order
  bool begun_ = false;           // compute_.front() has begun and not ended
  std::chrono::steady_clock::time_point computing_since_;  // the last begin or end
  // The update that the computing thread waits for, as it frees its sum's memory.
  std::optional<std::pair<StageId, Iteration>> waits_for_update_;
  std::optional<WorkerId> awaits_;  // AwaitWorker
  bool finished_ = false;
  std::string waiting_for_;                   // what the computing thread waits for, or empty
  std::map<Place, StageGradient> gradients_;  // after EndBackward, until added
  int64_t gradient_bytes_ = 0;                // of these, and of those being added
  std::map<std::pair<int, int>, SharedBuffer> held_copies_;  // (stage, version)
  std::map<Place, Buffer> started_sums_;  // from their first backward on, until its add
  std::map<Place, Buffer> statistics_;    // after EndForward, until applied
  // Clipping.
  std::map<std::pair<int, int>, std::vector<double>> squares_;  // (iteration, stage): undivided
  std::map<int, double> norms_;                                 // by iteration: global ones
  std::map<int, std::vector<double>> told_squares_;  // worker 0: by worker, of the last iterations
  std::map<int, double> last_squares_;               // by iteration, from Finish on
  LossScale scale_;  // where overflows are not skipped it is told nothing
  std::map<std::tuple<bool, int, int>, std::vector<double>> metrics_;  // evaluation?, t, lap
  std::map<int, SharedBuffer> initial_statistics_;                     // worker 0: by stage
  // (iteration, stage): running statistics of a version, for this worker's own evaluations and
  // collections, until its computing has passed that iteration. What is sent is in OpState::shared.
  std::map<std::pair<int, int>, SharedBuffer> snapshots_;
  EngineStats stats_;
  std::optional<ClockOffset> clock_offset_;
  std::vector<uint32_t> sent_messages_, received_messages_;  // by peer and channel

  std::unique_ptr<WorkerPool> pool_;  // last member but one: its thread uses all of the above
};

template <typename Work>
auto Engine::Impl::Costed(const Op& op, int count, const Work& work) {
  if (options_.costs == nullptr) return work();
  const int64_t begin = ThreadNanoseconds();
  auto result = work();
  options_.costs->Count(op, ThreadNanoseconds() - begin, count);
  return result;
}

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_IMPL_H_
