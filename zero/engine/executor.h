// Executor: runs one worker's program. It starts each operation when all that the operation waits
// for is done, and keeps the first error.
//
//   Executor executor(options);
//   RZ_RETURN_IF_ERROR(executor.Begin(std::move(program), {.start = …, .expect = …, .blame = …}));
//   executor.Complete(op);                       // with the lock held: starts what waited for it
//   executor.WaitFor(lock, "for …", done, {});   // a named wait with a deadline
//
// What an operation does is not its business: hooks start it. One mutex guards all that the engine
// has; Hold takes it.
#ifndef RINGZERO_ZERO_ENGINE_EXECUTOR_H_
#define RINGZERO_ZERO_ENGINE_EXECUTOR_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/deadline.h"
#include "p2p/transport.h"
#include "sharding/program/link.h"
#include "sharding/program/program.h"
#include "sharding/program/requests.h"
#include "zero/engine.h"
#include "zero/flight/flight_recorder.h"
#include "zero/worker_pool.h"

namespace ringzero {

struct OpState {
  LinkedOp linked;
  int waiting = 0;      // operations in linked.after that are not done, and one that has not begun
  bool arrived = true;  // of a word that is received: it is here
  bool begun = false;
  bool done = false;
  std::vector<int64_t> next;    // operations that wait for this one's end
  std::vector<int64_t> behind;  // and for its beginning
};

// Which operations of the program are done, which may start, and what each one holds.
//
// Operations are named by their number since the start (sharding/program/link.h). Finished ones at
// the front are forgotten. Not thread-safe: the engine guards it with its mutex. It decides
// nothing.
//
// A message begins before it is done: its block is posted, or its payload is on its way.
class ProgramState {
 public:
  ProgramState(const Plan& plan, WorkerId self) : linker_(plan, self, /*in_pieces=*/true) {}

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
  // The first operation that `op` waits for (itself, if its word is missing), but for `aside`;
  // kNoOp when it is ready.
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

// What the computing thread does, and what it waits for.
struct ComputingSide {
  std::deque<int64_t> next;                     // the computing operations to come, in order
  bool begun = false;                           // next.front() has begun and not ended
  std::chrono::steady_clock::time_point since;  // the last begin or end
  std::string waiting_for;                      // in words, or empty
  // Where the memory is missing in which a sum is to begin: the operation that frees it.
  std::optional<int64_t> missing;
  std::optional<WorkerId> worker;  // the one worker that it waits for
};

// What the executor's mutex guards.
struct Guarded {
  ProgramState program;
  ComputingSide computing;
  EngineStats stats;
  absl::Status error;     // the first: it has ended the run on every worker
  bool finished = false;  // the run is over, and what it had has been given back
};

class Executor {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Writer = FlightRecorder::Writer;

  struct Hooks {
    // Starts an operation that is ready. True: it is done already; else what ends it calls
    // Complete.
    std::function<bool(int64_t op)> start;
    // Asks for a word that is to be received. Its arrival takes the lock.
    std::function<absl::Status(int64_t op)> expect;
    // DeadlineExceeded that says who is to blame. May let go of the lock between.
    std::function<absl::Status(Lock& lock, const std::string& waited)> blame;
  };

  // `options` must outlive this.
  explicit Executor(const EngineOptions& options);

  // With the lock held:
  // Appends what is known of the program from its beginning.
  absl::Status Begin(std::unique_ptr<ProgramWriter> program, Hooks hooks);
  // Keeps the program known as far as kLapsAhead says.
  absl::Status AppendParts();
  // To append; nothing: all is.
  std::optional<ProgramPart> next_part() const {
    return program_ != nullptr ? program_->part() : ProgramPart();
  }
  // What worker 0 has asked for with iteration t (requests.h): more of the program may be known.
  void Learn(Iteration t, const RunRequest& request);
  // The plan with all that worker 0 has asked for.
  const Plan& plan_so_far() const { return program_->plan(); }
  void Complete(int64_t op);
  // A word that was asked for is here.
  void Arrive(int64_t op);

  // The first error ends the run, on every worker.
  void Fail(const absl::Status& why);
  // Names the operation, unless the transport has ended before.
  void FailAt(const Op& op, const absl::Status& why);

  // Waits for `done`, at most wait_timeout; `what` names the wait in errors. `waited` counts
  // seconds; it may be null.
  absl::Status WaitFor(Lock& lock, const std::string& what, const std::function<bool()>& done,
                       const std::function<void(double)>& waited);
  // On the pool's thread, without the lock: runs `work`, then completes `op`.
  void RunOnPool(int64_t op, std::function<absl::Status()> work);
  // Begins what a thread does that is not the pool's. It calls the result, once: `op` is over.
  std::function<void()> BeginElsewhere(int64_t op);
  // Of an operation that is over as it begins.
  void RecordAtOnce(const Op& op, uint32_t message = 0);
  // What a transport is to call at a message's end: `then` runs with the lock held, unless the run
  // is over; an error ends the run.
  Done AtEnd(std::function<void()> then);
  const Instruction& OpOf(int64_t op) const { return guarded_.program.at(op).linked.op; }
  Guarded& guarded() { return guarded_; }
  const Guarded& guarded() const { return guarded_; }

  // Any thread, without the lock:
  Lock Hold() const { return Lock(mutex_); }
  Lock TryToHold() const { return Lock(mutex_, std::try_to_lock); }
  // Ends the pool's thread.
  void StopPool() { pool_.reset(); }

  // Any thread, with or without the lock:
  // `work`, counted for `op` if costs are.
  template <typename Work>
  auto Costed(const Op& op, int count, const Work& work) {
    if (options_.costs == nullptr) return work();
    const int64_t begin = ThreadNanoseconds();
    auto result = work();
    options_.costs->Count(op, ThreadNanoseconds() - begin, count);
    return result;
  }
  const EngineOptions& options() const { return options_; }
  const Plan& plan() const { return options_.plan; }
  Transport* transport() const { return options_.transport.get(); }
  WorkerPool& pool() { return *pool_; }
  std::condition_variable& changed() { return changed_; }
  FlightRecorder& recorder() { return recorder_; }
  const FlightRecorder& recorder() const { return recorder_; }

 private:
  void Advance(std::vector<int64_t> ready);
  // Whether the next part depends on nothing that is not known yet.
  bool MayAppend() const;

  const EngineOptions& options_;
  FlightRecorder recorder_;  // of its writers kMessages is whoever holds mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Guarded guarded_;
  Hooks hooks_;
  std::unique_ptr<ProgramWriter> program_;  // from Begin on
  int learnt_ = 0;                          // all that iterations before this one have brought
  // Where those parts end that are appended and not behind the computing thread.
  std::deque<int64_t> part_ends_;
  std::unique_ptr<WorkerPool> pool_;  // last: its thread uses all of the above
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_EXECUTOR_H_
