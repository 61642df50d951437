// Verify of programs that no plan has written, such as mutants: as VerifyPlan does of a plan's own.
//
//   EXPECT_FALSE(Verify(plan, mutated).ok());
#ifndef RINGZERO_TESTS_SHARDING_GIVEN_PROGRAMS_H_
#define RINGZERO_TESTS_SHARDING_GIVEN_PROGRAMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"
#include "sharding/program/program.h"

namespace ringzero {

// Joined alone, without links. InvalidArgument unless there is one program per worker, in order,
// each of the whole run. The errors of JoinMessages.
absl::StatusOr<LinkedRing> Joined(const Plan& plan, const std::vector<Program>& programs);
// The links of what is joined. FailedPrecondition if a program does not link.
absl::Status Link(const Plan& plan, LinkedRing& ring);

absl::Status CheckMeaning(const Plan& plan, const std::vector<Program>& programs,
                          uint64_t order = 0);
absl::Status Verify(const Plan& plan, const std::vector<Program>& programs);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SHARDING_GIVEN_PROGRAMS_H_
