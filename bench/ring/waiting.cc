// Two loops: one sleeps on a condition variable, one polls.
#include "bench/ring/waiting.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// How often a sleeper looks whether the transport still lives: its end does not notify a thread that
// expects no message.
constexpr std::chrono::milliseconds kLook(50);
// How long a worker that polls while others are measured stays away; peers count it as alive.
constexpr std::chrono::microseconds kNap(500);
constexpr int kTurnsPerCheck = 32;
constexpr int kTurnsPerLook = 4096;  // at the clock

}  // namespace

absl::Status Waiting::Until(const std::string& what, Manner manner,
                            const std::function<bool()>& done) {
  return options_.progress == ProgressMode::kThread ? Sleep(what, manner, done)
                                                    : Poll(what, manner, done);
}

absl::Status Waiting::Late(const std::string& what, Manner manner) const {
  const Transport& transport = *options_.transport;
  return absl::DeadlineExceededError(absl::StrCat("worker ", transport.self().value, " waited ",
                                                  LimitOf(manner).count(), " ms for ", what));
}

absl::Status Waiting::Sleep(const std::string& what, Manner manner,
                            const std::function<bool()>& done) {
  const auto deadline = Clock::now() + LimitOf(manner);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!done()) {
    lock.unlock();
    const absl::Status ended = options_.transport->status();
    if (!ended.ok()) return ended;
    if (Clock::now() >= deadline) return Late(what, manner);
    lock.lock();
    changed_.wait_until(lock, std::min(deadline, Clock::now() + kLook), done);
  }
  return absl::OkStatus();
}

absl::Status Waiting::Poll(const std::string& what, Manner manner,
                           const std::function<bool()>& done) {
  const auto deadline = Clock::now() + LimitOf(manner);
  bool moved = true;
  for (uint64_t turn = 1;; ++turn) {
    // Only what moves changes anything, but for what `done` looks at beside the transport.
    if (moved || turn % kTurnsPerCheck == 0 || manner == Manner::kIdle) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (done()) return absl::OkStatus();
    }
    moved = options_.transport->Poll();
    if (turn % kTurnsPerLook == 0 || manner == Manner::kIdle) {
      const absl::Status ended = options_.transport->status();
      if (!ended.ok()) return ended;
      if (Clock::now() >= deadline) return Late(what, manner);
    }
    if (moved) continue;
    if (manner == Manner::kIdle) {
      std::this_thread::sleep_for(kNap);
    } else if (options_.workers_per_core > 1) {
      sched_yield();
    }
  }
}

}  // namespace ringzero
