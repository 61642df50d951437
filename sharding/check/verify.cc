// Puts the checks of programs together, and chooses windows by them.
#include "sharding/check/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "sharding/check/wait_graph.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

absl::Status CheckProgress(Plan plan, int window) {
  plan.window = window;
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan));
  return WaitGraph(ring).CheckProgress();
}

// The smallest window of at least `least` without a circle of waits, if there is one. Each window
// has a program of its own: blocks are named by it.
absl::StatusOr<int> SmallestFrom(const Plan& plan, int least) {
  if (CheckProgress(plan, least).ok()) return least;
  RZ_ASSIGN_OR_RETURN(const int useful, LargestUsefulWindow(plan));
  int low = least, high = std::max(least, useful);
  RZ_RETURN_IF_ERROR(CheckProgress(plan, high));
  while (high - low > 1) {  // low deadlocks, high does not
    const int middle = low + (high - low) / 2;
    (CheckProgress(plan, middle).ok() ? high : low) = middle;
  }
  return high;
}

}  // namespace

absl::Status VerifyPlan(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  if (plan.window == 0 && plan.workers > 1) {
    return absl::InvalidArgumentError("plan: window is not resolved yet (ChooseWindow)");
  }
  const Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(shortened));
  return CheckRing(shortened, ring);
}

absl::Status CheckRing(const Plan& plan, const LinkedRing& ring) {
  RZ_RETURN_IF_ERROR(CheckMeaning(plan, ring));
  const WaitGraph graph(ring);
  RZ_RETURN_IF_ERROR(graph.CheckProgress());
  return graph.CheckOverwrites(plan);
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
  Plan resolved = plan;
  if (plan.window == 0) resolved.window = LeastWindow(plan);
  absl::Status verified = VerifyPlan(resolved);
  if (!verified.ok() && plan.window == 0) {
    RZ_ASSIGN_OR_RETURN(resolved.window, SmallestFrom(ShortenedPlan(plan), resolved.window));
    verified = VerifyPlan(resolved);
  }
  RZ_RETURN_IF_ERROR(verified);
  return PlanProof(resolved);
}

absl::StatusOr<int> ChooseWindow(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  if (plan.window == 0) return SmallestFrom(ShortenedPlan(plan), LeastWindow(plan));
  RZ_RETURN_IF_ERROR(VerifyPlan(plan));
  return plan.window;
}

}  // namespace ringzero
