// CheckEvents: do the events of a whole run, predicted or measured, tell of exactly what was
// planned?
//
//   EXPECT_EQ(CheckEvents(plan, *PredictEvents(plan, {})), absl::OkStatus());
#ifndef RINGZERO_TESTS_SHARDING_EVENT_RULES_H_
#define RINGZERO_TESTS_SHARDING_EVENT_RULES_H_

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "sharding/plan.h"
#include "sharding/study/event.h"

namespace ringzero {

// By worker: every operation of its program begins and ends once, the computing ones in the
// program's order; a track does one thing at a time; every wait ends; the n-th message of a channel
// is the same at both ends, and arrives after it left (one clock for all).
absl::Status CheckEvents(const Plan& plan, std::span<const std::vector<Event>> events);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SHARDING_EVENT_RULES_H_
