// Requests: what worker 0 may ask for while a run goes on: that it ends early, that a version is
// evaluated, collected or saved.
//
//   const Version v = RequestedVersion(plan, Iteration(17));    // of what iteration 17 brings
//   const RunRequest request{.version = v, .ends = true};
//   RZ_RETURN_IF_ERROR(VerifyPlan(PlanAround(plan, request)));  // before it is told
//
// A request travels with the losses of an iteration's first lap, from worker 0 to the last worker.
// A worker writes no part of its program so many iterations later (IterationsOfNotice) until it has
// these losses, and so it knows then what was asked for. Nothing that was written before depends on
// it: a part of iteration t depends on what is evaluated, collected and saved of θ_t and θ_{t+1},
// and on whether iteration t + 1 exists.
#ifndef RINGZERO_SHARDING_PROGRAM_REQUESTS_H_
#define RINGZERO_SHARDING_PROGRAM_REQUESTS_H_

#include <algorithm>
#include <span>

#include "base/ids.h"
#include "sharding/plan.h"
#include "sharding/program/program.h"

namespace ringzero {

struct RunRequest {
  Version version{0};
  bool ends = false;       // it is the last version
  bool evaluates = false;  // it is evaluated
  bool collects = false;   // it is collected
  bool saves = false;      // it is saved
  bool any() const { return ends || evaluates || collects || saves; }
  bool operator==(const RunRequest&) const = default;
};

// As it travels, behind the metrics.
inline constexpr int kRequestNumbers = 2;
void WriteRequest(const RunRequest& request, std::span<double> numbers);
RunRequest ReadRequest(std::span<const double> numbers);
inline int NumbersInFold(const Plan& plan, int metrics_count) {
  return std::max(1, metrics_count + (plan.requests ? kRequestNumbers : 0));
}

// Iteration t + this is the first of which a part is written with what iteration t brings: a worker
// that computes iteration t may know its program up to the one before.
inline int IterationsOfNotice(const Plan& plan) {
  return 1 + (kLapsAhead + plan.laps - 1) / plan.laps;
}
// The version that a request is about.
inline Version RequestedVersion(const Plan& plan, Iteration brought_by) {
  return Version(brought_by.value + IterationsOfNotice(plan) + 1);
}

void NoteRequest(const RunRequest& request, Plan& plan);

// The plan with this request, from shortly before its version until shortly after. If this is
// verified, the request can be met.
Plan PlanAround(Plan plan, const RunRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_REQUESTS_H_
