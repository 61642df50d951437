// Waiting: how a worker's calling thread waits: asleep, or by polling its transport.
//
//   Waiting waiting({.transport = transport.get(), .progress = ProgressMode::kThread, …});
//   RZ_RETURN_IF_ERROR(
//       waiting.Until("the sums of iteration 7", Manner::kBusy, [&] { return done; }));
//   { std::lock_guard lock(waiting.mutex()); done = true; }   waiting.Notify();   // any thread
//
// Every wait has a limit and a name. Notify and mutex() from any thread, Until from the caller's.
#ifndef RINGZERO_BENCH_RING_WAITING_H_
#define RINGZERO_BENCH_RING_WAITING_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
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

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_WAITING_H_
