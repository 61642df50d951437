// Puts the checks of programs together, and chooses windows by them.
#include "sharding/verify.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "sharding/linked_ring.h"
#include "sharding/schedule.h"
#include "sharding/wait_graph.h"

namespace ringzero {
namespace {

absl::Status CheckProgress(Plan plan, int window) {
  plan.window = window;
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan));
  return WaitGraph(ring).CheckProgress();
}

// The smallest window of at least `least` without a circle of waits, if there is one. Each window has
// a program of its own: blocks are named by it.
absl::StatusOr<int> SmallestFrom(const Plan& plan, int least) {
  if (CheckProgress(plan, least).ok()) return least;
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan));
  int low = least, high = std::max(least, WaitGraph(ring).LargestUsefulWindow());
  RZ_RETURN_IF_ERROR(CheckProgress(plan, high));
  while (high - low > 1) {  // low deadlocks, high does not
    const int middle = low + (high - low) / 2;
    (CheckProgress(plan, middle).ok() ? high : low) = middle;
  }
  return high;
}

absl::Status CheckWindow(const Plan& plan) {
  if (plan.window > 0 || plan.workers == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("plan: window is not resolved yet (ChooseWindow)");
}

absl::Status CheckWaits(const Plan& plan, const LinkedRing& ring) {
  const WaitGraph graph(ring);
  RZ_RETURN_IF_ERROR(graph.CheckProgress());
  return graph.CheckOverwrites(plan);
}

// Where a run begins, shortened. Whether its first version is evaluated stays as it is, though
// evaluations come closer together.
int ShortenedFirst(const Plan& plan) {
  const bool evaluated =
      plan.evaluation.every > 1 && IsEvaluated(plan, Version(plan.first_iteration));
  return evaluated ? 2 : std::min(plan.first_iteration, 1);
}

// Where its warm-up ends, if it has one left: behind the first iteration, one that follows, and the
// last. Whether θ_W is evaluated, with which the rule begins, stays as it is.
int ShortenedWarmup(const Plan& plan, int first) {
  constexpr int kEnough = 3;
  const int left = plan.warmup_updates - plan.first_iteration, every = plan.evaluation.every;
  if (left <= 0) return 0;
  const int warmup = first + std::min(left, kEnough);
  if (every <= 1) return warmup;
  const bool evaluated = plan.warmup_updates % every == 0;
  return evaluated == (warmup % 2 == 0) ? warmup : warmup + 1;
}

}  // namespace

absl::Status Verify(const Plan& plan, std::vector<Program> programs) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  RZ_RETURN_IF_ERROR(CheckWindow(plan));
  RZ_ASSIGN_OR_RETURN(LinkedRing ring, LinkedRing::Join(plan, std::move(programs)));
  RZ_RETURN_IF_ERROR(CheckMeaning(plan, ring));
  RZ_RETURN_IF_ERROR(ring.Link(plan));
  return CheckWaits(plan, ring);
}

Plan ShortenedPlan(const Plan& plan) {
  constexpr int kEnough = 5;
  // The first, which may be stale, the second, which takes what is injected after it, those that go
  // on and the last: among so many a worker's horizon has passed some.
  constexpr int kEnoughLaps = 5;
  Plan shortened = plan;
  shortened.laps = std::min(plan.laps, kEnoughLaps);
  // The first, one in the middle, and the last.
  shortened.evaluation.laps = std::min(plan.evaluation.laps, 3);
  if (plan.iterations - plan.first_iteration <= kEnough) return shortened;
  const int first = ShortenedFirst(plan), warmup = ShortenedWarmup(plan, first);
  const int of_rule = plan.iterations - std::max(plan.first_iteration, plan.warmup_updates);
  shortened.first_iteration = first;
  shortened.warmup_updates = warmup;
  shortened.iterations = std::max(first, warmup) + std::min(of_rule, kEnough - 1);
  // Every version collected: waits are only taken away where one is not.
  if (plan.collection.every > 0 || !plan.collection.versions.empty()) {
    shortened.collection.every = 1;
    shortened.collection.versions.clear();
  }
  if (plan.evaluation.every <= 0) return shortened;
  // How closely evaluations follow each other, and the last one the one before it, is kept up to 2.
  shortened.evaluation.every = std::min(plan.evaluation.every, 2);
  const bool last_two_adjacent = plan.iterations % plan.evaluation.every == 1;
  const bool are_adjacent = shortened.iterations % shortened.evaluation.every == 1;
  if (shortened.evaluation.every == 2 && last_two_adjacent != are_adjacent) ++shortened.iterations;
  if (of_rule == 0) shortened.warmup_updates = shortened.iterations;
  return shortened;
}

absl::Status VerifyPlan(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  RZ_RETURN_IF_ERROR(CheckWindow(plan));
  const Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(shortened));
  RZ_RETURN_IF_ERROR(CheckMeaning(shortened, ring));
  return CheckWaits(shortened, ring);
}

absl::StatusOr<PlanProof> PlanProof::Parse(const std::string& text) {
  PlanProof proof;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  if (!absl::SimpleAtoi(parts.first, &proof.window_) || parts.second.size() != 64) {
    return InvalidArgument("no proof of a plan: \"", text.substr(0, 80), "\"");
  }
  proof.digest_ = parts.second;
  return proof;
}

absl::StatusOr<PlanProof> ProvePlan(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  const Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(shortened));
  RZ_RETURN_IF_ERROR(CheckMeaning(shortened, ring));
  const WaitGraph graph(ring);
  Plan resolved = plan;
  if (plan.window > 0) {
    RZ_RETURN_IF_ERROR(graph.CheckProgress());
  } else {
    resolved.window = LeastWindow(plan);
    if (!graph.CheckProgress().ok()) {
      RZ_ASSIGN_OR_RETURN(resolved.window, SmallestFrom(shortened, resolved.window));
      RZ_RETURN_IF_ERROR(VerifyPlan(resolved));
      return PlanProof(resolved);
    }
  }
  RZ_RETURN_IF_ERROR(graph.CheckOverwrites(shortened));
  return PlanProof(resolved);
}

absl::StatusOr<int> ChooseWindow(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  if (plan.window == 0) return SmallestFrom(ShortenedPlan(plan), LeastWindow(plan));
  RZ_RETURN_IF_ERROR(VerifyPlan(plan));
  return plan.window;
}

absl::StatusOr<int> SmallestWindow(const Plan& plan) {
  return SmallestFrom(ShortenedPlan(plan), 1);
}

}  // namespace ringzero
