// What a request changes in a plan.
#include "sharding/program/requests.h"

#include <vector>

namespace ringzero {
namespace {

// In `kinds`, the first of the two numbers.
constexpr int kEnds = 1, kEvaluates = 2, kCollects = 4, kSaves = 8;

void Insert(int version, std::vector<int>& versions) {
  const auto at = std::lower_bound(versions.begin(), versions.end(), version);
  if (at == versions.end() || *at != version) versions.insert(at, version);
}

}  // namespace

void WriteRequest(const RunRequest& request, std::span<double> numbers) {
  numbers[0] = (request.ends ? kEnds : 0) + (request.evaluates ? kEvaluates : 0) +
               (request.collects ? kCollects : 0) + (request.saves ? kSaves : 0);
  numbers[1] = request.version.value;
}

RunRequest ReadRequest(std::span<const double> numbers) {
  const int kinds = static_cast<int>(numbers[0]);
  return {.version = Version(static_cast<int>(numbers[1])),
          .ends = (kinds & kEnds) != 0,
          .evaluates = (kinds & kEvaluates) != 0,
          .collects = (kinds & kCollects) != 0,
          .saves = (kinds & kSaves) != 0};
}

void NoteRequest(const RunRequest& request, Plan& plan) {
  const int version = request.version.value;
  if (request.ends) plan.iterations = std::min(plan.iterations, version);
  if (request.evaluates) Insert(version, plan.evaluation.versions);
  if (request.collects) Insert(version, plan.collection.versions);
  if (request.saves) Insert(version, plan.checkpoint.versions);
}

Plan PlanAround(Plan plan, const RunRequest& request) {
  constexpr int kBefore = 2, kBehind = 3;  // as few as a shortened plan has
  NoteRequest(request, plan);
  plan.iterations = std::min(plan.iterations, request.version.value + kBehind);
  // Else a shortened plan would have some, in case they are asked for.
  if (plan.evaluation.every == 0 && plan.evaluation.versions.empty()) plan.evaluation.laps = 0;
  const int behind = plan.iterations - request.version.value;
  plan.first_iteration =
      std::max(plan.first_iteration, request.version.value - (kBefore + kBehind - behind));
  return plan;
}

}  // namespace ringzero
