// Simulates a few iterations with one window after the other.
#include "sharding/free_window.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sharding/linked_ring.h"
#include "sharding/program.h"
#include "sharding/simulate.h"
#include "sharding/verify.h"
#include "sharding/wait_graph.h"

namespace ringzero {
namespace {

// What an iteration in the middle of a run takes with one window or another.
class WindowSteps {
 public:
  static absl::StatusOr<WindowSteps> Make(Plan plan) {
    plan.evaluation = {};
    plan.collection = {};
    plan.iterations = kShort;
    RZ_ASSIGN_OR_RETURN(LinkedRing shorter, RingOf(plan));
    plan.iterations = kLong;
    RZ_ASSIGN_OR_RETURN(LinkedRing longer, RingOf(plan));
    return WindowSteps(std::move(plan), std::move(shorter), std::move(longer));
  }

  // In ticks, of kLong - kShort iterations: begin and end are alike in both runs.
  absl::StatusOr<int64_t> With(int window) const {
    RZ_ASSIGN_OR_RETURN(const int64_t less, Makespan(shorter_, window));
    RZ_ASSIGN_OR_RETURN(const int64_t more, Makespan(longer_, window));
    return more - less;
  }
  // With so many slots no message ever waits for one.
  int no_limit() const { return WaitGraph(longer_).LargestUsefulWindow(); }

 private:
  static constexpr int kShort = 4, kLong = 7;

  WindowSteps(Plan plan, LinkedRing shorter, LinkedRing longer)
      : plan_(std::move(plan)), shorter_(std::move(shorter)), longer_(std::move(longer)) {}

  static absl::StatusOr<LinkedRing> RingOf(const Plan& plan) {
    RZ_ASSIGN_OR_RETURN(const std::vector<Program> programs, MakePrograms(plan, WholeRun(plan)));
    return LinkedRing::Make(plan, programs);
  }
  absl::StatusOr<int64_t> Makespan(const LinkedRing& ring, int window) const {
    RZ_ASSIGN_OR_RETURN(const Timeline times, RunTimeline(plan_, ring, {.window = window}));
    return *std::max_element(times.end.begin(), times.end.end());
  }

  Plan plan_;
  LinkedRing shorter_, longer_;
};

bool IsEnough(int64_t step, int64_t shortest) { return 100 * (step - shortest) <= shortest; }

}  // namespace

absl::StatusOr<int> ChooseFreeWindow(const Plan& plan) {
  RZ_ASSIGN_OR_RETURN(const int least, ChooseWindow(plan));
  if (plan.window > 0 || plan.workers == 1 || !plan.exchange) return least;
  RZ_ASSIGN_OR_RETURN(const WindowSteps steps, WindowSteps::Make(plan));
  const int most = std::max(least, steps.no_limit());
  RZ_ASSIGN_OR_RETURN(const int64_t shortest, steps.With(most));
  RZ_ASSIGN_OR_RETURN(const int64_t first, steps.With(least));
  if (IsEnough(first, shortest)) return least;
  int low = least, high = most;  // low is too small, high is enough: more slots delay nothing
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    RZ_ASSIGN_OR_RETURN(const int64_t step, steps.With(middle));
    (IsEnough(step, shortest) ? high : low) = middle;
  }
  return high;
}

}  // namespace ringzero
