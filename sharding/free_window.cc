// Simulates a few iterations with one window after the other.
#include "sharding/free_window.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sharding/linked_ring.h"
#include "sharding/schedule.h"
#include "sharding/simulate.h"
#include "sharding/verify.h"
#include "sharding/wait_graph.h"

namespace ringzero {
namespace {

// What an iteration in the middle of a run takes with one window or another.
class WindowSteps {
 public:
  explicit WindowSteps(const Plan& plan) : plan_(plan) {
    plan_.evaluation = {};
    plan_.collection = {};
    plan_.warmup_updates = plan_.first_iteration = 0;
    plan_.laps = std::min(plan.laps, kEnoughLaps);
  }

  // In ticks, of kLong - kShort iterations: begin and end are alike in both runs.
  absl::StatusOr<int64_t> With(int window) {
    plan_.window = window;
    RZ_ASSIGN_OR_RETURN(const int64_t less, Makespan(kShort));
    RZ_ASSIGN_OR_RETURN(const int64_t more, Makespan(kLong));
    return more - less;
  }
  // With so many slots no message ever waits for one.
  absl::StatusOr<int> NoLimit() {
    plan_.iterations = kLong;
    RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan_));
    return WaitGraph(ring).LargestUsefulWindow();
  }

 private:
  static constexpr int kShort = 3, kLong = 5;
  // Messages come early from one lap to the next. With more laps the same waits are a smaller part.
  static constexpr int kEnoughLaps = 4;

  absl::StatusOr<int64_t> Makespan(int iterations) {
    plan_.iterations = iterations;
    RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan_));
    RZ_ASSIGN_OR_RETURN(const Timeline times, RunTimeline(plan_, ring, {}));
    return *std::max_element(times.end.begin(), times.end.end());
  }

  Plan plan_;
};

}  // namespace

absl::StatusOr<int> ChooseFreeWindow(const Plan& plan) {
  RZ_ASSIGN_OR_RETURN(int least, ChooseWindow(plan));
  if (plan.window > 0 || plan.workers == 1 || !plan.exchange) return least;
  if (plan.warmup_updates > 0) {
    RZ_ASSIGN_OR_RETURN(const int warmup, ChooseFreeWindow(WarmupOf(plan)));
    least = std::max(least, warmup);
  }
  WindowSteps steps(plan);
  RZ_ASSIGN_OR_RETURN(const int no_limit, steps.NoLimit());
  const int most = std::max(least, no_limit);
  RZ_ASSIGN_OR_RETURN(const int64_t shortest, steps.With(most));
  const auto is_enough = [&](int window) -> absl::StatusOr<bool> {
    RZ_ASSIGN_OR_RETURN(const int64_t step, steps.With(window));
    return 100 * (step - shortest) <= shortest;
  };
  // Most often a few more do. More slots delay nothing, so all that are larger are enough, too.
  int low = least - 1, high = least;
  while (true) {
    RZ_ASSIGN_OR_RETURN(const bool enough, is_enough(high));
    if (enough) break;
    low = std::exchange(high, std::min(2 * high, most));
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    RZ_ASSIGN_OR_RETURN(const bool enough, is_enough(middle));
    (enough ? high : low) = middle;
  }
  return high;
}

}  // namespace ringzero
