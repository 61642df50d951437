// SlowedUpdate: an update that takes longer than it computes, to measure what hides updates.
//
//   SlowedUpdate slowed(10);
//   while (slowed.Step([&] { return update.Step(); })) {}   // nine tenths of it asleep
//
// Not thread-safe.
#ifndef RINGZERO_ZERO_SLOWED_UPDATE_H_
#define RINGZERO_ZERO_SLOWED_UPDATE_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace ringzero {

class SlowedUpdate {
 public:
  // `slowness`: how many times as long as its steps it takes; 1: no longer.
  explicit SlowedUpdate(double slowness) : slowness_(slowness) {}

  // Does the next step, which says whether there are more; then sleeps, at most 100 us a call, so
  // that whoever calls may do something else between. True until both are over.
  bool Step(const std::function<bool()>& next) {
    using Clock = std::chrono::steady_clock;
    if (!worked_) {
      const Clock::time_point begin = Clock::now();
      worked_ = !next();
      took_ += Clock::now() - begin;
      if (!worked_) return true;
      until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>((slowness_ - 1) * took_);
    }
    const Clock::duration left = until_ - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::microseconds(100)));
    return true;
  }

 private:
  double slowness_;
  bool worked_ = false;
  std::chrono::duration<double> took_{0};
  std::chrono::steady_clock::time_point until_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_SLOWED_UPDATE_H_
