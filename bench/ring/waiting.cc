// One loop, whose turns sleep on a condition variable or poll.
#include "bench/ring/waiting.h"

#include <sched.h>

#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// How often a sleeper looks whether the transport still lives: a transport that ends does not
// notify a thread that expects no message.
constexpr std::chrono::milliseconds kLook(50);
// How long an idle worker that polls sleeps between two polls; peers count it as alive.
constexpr std::chrono::microseconds kNap(500);
constexpr int kTurnsPerCheck = 32;
constexpr int kTurnsPerLook = 4096;  // at the clock

}  // namespace

absl::Status Waiting::Until(const std::string& what, Manner manner,
                            const std::function<bool()>& done) {
  Transport& transport = *options_.transport;
  const bool sleeps = options_.progress == ProgressMode::kThread, idle = manner == Manner::kIdle;
  const std::chrono::milliseconds limit = idle ? kWaitLimit : options_.limit;
  const auto deadline = Clock::now() + limit;
  bool moved = true;
  for (uint64_t turn = 1;; ++turn) {
    // When polling, `done` can change only if something moved, or outside of the transport.
    if (sleeps || moved || turn % kTurnsPerCheck == 0 || idle) {
      std::unique_lock<std::mutex> lock(mutex_);
      if (sleeps ? changed_.wait_for(lock, kLook, done) : done()) return absl::OkStatus();
    }
    if (!sleeps) moved = transport.Poll();
    if (sleeps || turn % kTurnsPerLook == 0 || idle) {
      const absl::Status ended = transport.status();
      if (!ended.ok()) return ended;
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "worker ", transport.self().value, " waited ", limit.count(), " ms for ", what));
      }
    }
    if (sleeps || moved) continue;
    if (idle) {
      std::this_thread::sleep_for(kNap);
    } else if (options_.workers_per_core > 1) {
      sched_yield();
    }
  }
}

}  // namespace ringzero
