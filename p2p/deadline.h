// Deadline: one limit for several waits in a row.
//
//   const Deadline deadline(seat.join_limit);
//   for (…) RZ_ASSIGN_OR_RETURN(const std::string value, rendezvous->Get(key, deadline.Left()));
//
// A value. Thread-safe.
#ifndef RINGZERO_P2P_DEADLINE_H_
#define RINGZERO_P2P_DEADLINE_H_

#include <algorithm>
#include <chrono>

namespace ringzero {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit) : end_(Clock::now() + limit) {}
  // Never below 0; rounded up, so that 0 means that it is over.
  std::chrono::milliseconds Left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_DEADLINE_H_
