// Deadline: one limit for several waits in a row, in time during which this process is awake.
//
//   const Deadline deadline(seat.join_limit);
//   for (…) RZ_ASSIGN_OR_RETURN(const std::string value, rendezvous->Get(key, deadline.Left()));
//
//   if (!WaitUntil(lock, changed, Deadline(limit), [&] { return done; })) return TooLate();
//
// A job that was stopped (Ctrl-Z, a suspended container) and goes on has not used up its deadlines:
// all deadlines of a run count AwakeNow. A wait of one's own looks at its deadline at least every
// kAwakeLook: it waits Look() at a time. Left() is for a callee that has a deadline of its own.
//
// Patience: for looking again and again at what wakes no thread, a folder on a network say.
//
//   for (Patience patience(limit); !Found() && !patience.over();) patience.Wait();
//
// A Deadline is a value, and thread-safe; a Patience and an AwakeClock are one thread's.
#ifndef RINGZERO_P2P_DEADLINE_H_
#define RINGZERO_P2P_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ringzero {

// Time since an arbitrary moment, less what passed while the caller was held up: stopped, or
// starved of processors.
class AwakeClock {
 public:
  using Clock = std::chrono::steady_clock;

  // The caller means to Tick at least once in `interval`; what exceeds two of them is left out.
  AwakeClock(Clock::time_point now, Clock::duration interval)
      : longest_(2 * interval), last_(now), now_(now), previous_(now) {}

  // The awake time at `now`. `now` must not go back.
  Clock::time_point Tick(Clock::time_point now) {
    const Clock::duration passed = std::max(now - last_, Clock::duration::zero());
    previous_ = now_;
    now_ += std::min(passed, longest_);
    last_ = std::max(last_, now);
    return now_;
  }
  // The awake time of `moment`, which lies between the last two ticks (else the nearer of them).
  Clock::time_point At(Clock::time_point moment) const {
    return std::clamp(now_ - (last_ - moment), previous_, now_);
  }

 private:
  const Clock::duration longest_;
  Clock::time_point last_;      // of the last Tick, ordinary time
  Clock::time_point now_;       // awake time at the last Tick
  Clock::time_point previous_;  // and at the one before
};

// A thread that waits for a deadline calls AwakeNow at least so often.
inline constexpr std::chrono::milliseconds kAwakeLook(100);
// The awake time of this process: one AwakeClock, which each call ticks. Of a gap between two calls
// 2 * kAwakeLook count. Thread-safe.
inline AwakeClock::Clock::time_point AwakeNow() {
  static std::mutex mutex;
  static AwakeClock clock(AwakeClock::Clock::now(), kAwakeLook);
  const std::lock_guard<std::mutex> lock(mutex);
  return clock.Tick(AwakeClock::Clock::now());
}

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit) : end_(AwakeNow() + limit) {}
  // Never below 0; rounded up, so that 0 means that it is over.
  std::chrono::milliseconds Left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - AwakeNow());
    return std::max(left, std::chrono::milliseconds(0));
  }
  bool over() const { return AwakeNow() >= end_; }
  // How long to wait before the next look at it.
  std::chrono::milliseconds Look() const { return std::min(Left(), kAwakeLook); }

 private:
  AwakeClock::Clock::time_point end_;
};

// Waits on `changed`, which `lock` belongs to, until `done()` or the deadline. What `done` says.
template <typename Done>
bool WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
               const Deadline& deadline, const Done& done) {
  while (!done()) {
    if (deadline.over()) return false;
    changed.wait_for(lock, deadline.Look());
  }
  return true;
}

class Patience {
 public:
  explicit Patience(std::chrono::milliseconds limit) : deadline_(limit) {}
  bool over() const { return deadline_.over(); }
  // For 1 ms at first, as most of the time the others are nearly there; for up to 50 ms later.
  void Wait() {
    std::this_thread::sleep_for(std::min<std::chrono::microseconds>(pause_, deadline_.Left()));
    pause_ = std::min<std::chrono::microseconds>(pause_ * 3 / 2, std::chrono::milliseconds(50));
  }

 private:
  const Deadline deadline_;
  std::chrono::microseconds pause_ = std::chrono::milliseconds(1);
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_DEADLINE_H_
