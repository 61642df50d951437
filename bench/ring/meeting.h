// How workers of ring_perf wait (Waiting), and what they tell each other between measurements
// (Control): who is ready, and the numbers to worker 0.
//
//   Waiting waiting({.transport = transport.get(), .progress = ProgressMode::kThread, …});
//   RZ_RETURN_IF_ERROR(
//       waiting.Until("the sums of iteration 7", Manner::kBusy, [&] { return done; }));
//   { std::lock_guard lock(waiting.mutex()); done = true; }   waiting.Notify();   // any thread
//
//   const std::unique_ptr<Control> control = Control::Create(&waiting);
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> all,
//                       control->Gather("ready", my_text, Manner::kBusy));
//   RZ_ASSIGN_OR_RETURN(std::string word, control->Tell("go", of_worker_0, Manner::kIdle));
//
// Every wait has a limit and a name. Notify and mutex(): any thread; all else: the calling one.
#ifndef RINGZERO_BENCH_RING_MEETING_H_
#define RINGZERO_BENCH_RING_MEETING_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/transport.h"

namespace ringzero {

// kBusy: as fast as can be. kIdle: others are measured meanwhile, so no core is burned.
enum class Manner { kBusy, kIdle };

// The limit of every idle wait, and of a busy one unless the user gives another (-T).
inline constexpr std::chrono::minutes kWaitLimit(10);

struct WaitingOptions {
  Transport* transport = nullptr;  // outlives this
  ProgressMode progress = ProgressMode::kThread;
  std::chrono::milliseconds limit = kWaitLimit;  // of a busy wait
  int workers_per_core = 1;  // above 1, a worker that polls yields between two turns
};

// The calling thread waits asleep, or polls its transport.
class Waiting {
 public:
  explicit Waiting(const WaitingOptions& options) : options_(options) {}

  // `done` is called with mutex() held. Returns the transport's error if the transport ends,
  // DeadlineExceeded with `what` after the limit.
  absl::Status Until(const std::string& what, Manner manner, const std::function<bool()>& done);
  void Notify() { changed_.notify_all(); }
  std::mutex& mutex() { return mutex_; }
  Transport& transport() { return *options_.transport; }

 private:
  const WaitingOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Texts go as questions of the transport, so that they take no memory and no channel from what is
// measured, and work over every transport. All workers call the same methods in the same order.
class Control {
 public:
  // `waiting` and its transport outlive this. Create makes that transport answer (AnswerWith).
  static std::unique_ptr<Control> Create(Waiting* waiting);

  // The texts of all workers, by worker, at worker 0; empty elsewhere. Worker 0 returns when all
  // have called, any other worker when worker 0 has taken its text.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& what, const std::string& text,
                                                  Manner manner);
  // Worker 0's text, on every worker.
  absl::StatusOr<std::string> Tell(const std::string& what, const std::string& text, Manner manner);
  // Returns when all have called.
  absl::Status Meet(const std::string& what, Manner manner);

 private:
  struct Text {
    std::string so_far;
    bool complete = false;
  };
  using Inbox = std::map<std::pair<int, uint64_t>, Text>;  // by (from, number)
  explicit Control(Waiting* waiting) : waiting_(waiting), inbox_(std::make_shared<Inbox>()) {}

  absl::Status SendPart(WorkerId to, const std::string& what, const std::string& question);
  absl::Status Send(WorkerId to, const std::string& what, const std::string& text);
  absl::StatusOr<std::string> Receive(WorkerId from, const std::string& what, Manner manner);

  Waiting* waiting_;
  std::shared_ptr<Inbox> inbox_;  // shared with the answerer, which the transport keeps
  uint64_t number_ = 0;           // of the call; the same on all workers
};

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_MEETING_H_
