// One clock's arithmetic, and the clock of the process.
#include "p2p/deadline.h"

namespace ringzero {

AwakeClock::AwakeClock(Clock::time_point now, Clock::duration interval)
    : longest_(2 * interval), last_(now), now_(now), previous_(now) {}

AwakeClock::Clock::time_point AwakeClock::Tick(Clock::time_point now) {
  const Clock::duration passed = std::max(now - last_, Clock::duration::zero());
  previous_ = now_;
  now_ += std::min(passed, longest_);
  last_ = std::max(last_, now);
  return now_;
}

AwakeClock::Clock::time_point AwakeClock::At(Clock::time_point moment) const {
  return std::clamp(now_ - (last_ - moment), previous_, now_);
}

AwakeClock::Clock::time_point AwakeNow() {
  static std::mutex mutex;
  static AwakeClock clock(AwakeClock::Clock::now(), kAwakeLook);
  const std::lock_guard<std::mutex> lock(mutex);
  return clock.Tick(AwakeClock::Clock::now());
}

}  // namespace ringzero
