// AwakeClock: time, less what passed while this process was stopped or starved of processors.
//
//   const auto end = AwakeNow() + limit;
//   while (!done()) {
//     if (AwakeNow() >= end) return TooLate();
//     changed.wait_for(lock, kAwakeLook);
//   }
//
// A job that was stopped (Ctrl-Z, a suspended container) and goes on has not used up its deadlines:
// all deadlines of a run count AwakeNow. Deadline (p2p/deadline.h) is such a loop's usual form.
#ifndef RINGZERO_P2P_AWAKE_CLOCK_H_
#define RINGZERO_P2P_AWAKE_CLOCK_H_

#include <chrono>

namespace ringzero {

// Time since an arbitrary moment, less what passed while the caller was held up. Not thread-safe.
class AwakeClock {
 public:
  using Clock = std::chrono::steady_clock;

  // The caller means to Tick at least once in `interval`; what exceeds two of them is left out.
  AwakeClock(Clock::time_point now, Clock::duration interval);

  // The awake time at `now`. `now` must not go back.
  Clock::time_point Tick(Clock::time_point now);
  // The awake time of `moment`, which lies between the last two ticks (else the nearer of them).
  Clock::time_point At(Clock::time_point moment) const;

 private:
  const Clock::duration longest_;
  Clock::time_point last_;      // of the last Tick, ordinary time
  Clock::time_point now_;       // awake time at the last Tick
  Clock::time_point previous_;  // and at the one before
};

// Who waits for a deadline calls AwakeNow at least so often.
inline constexpr std::chrono::milliseconds kAwakeLook(100);
// The awake time of this process: one AwakeClock, which each call ticks. Of a gap between two calls
// 2 * kAwakeLook count. Thread-safe.
AwakeClock::Clock::time_point AwakeNow();

}  // namespace ringzero

#endif  // RINGZERO_P2P_AWAKE_CLOCK_H_
