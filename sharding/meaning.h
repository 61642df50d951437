// Meaning: one sequential run of all programs on symbols.
//
//   RZ_RETURN_IF_ERROR(CheckMeaning(plan, programs));
//
// Each block holds a symbol: θ_3 of stage 2, the sum of the gradients of micro-batches 8 to 11, the
// fold of five micro-batches' metrics. Operations run one after the other, in an order that the
// hazards on blocks allow (hazards.h); each must find what the definitions say, and leaves what it
// makes. Any other order that the hazards allow means the same, so one run stands for all timings.
//
// What must be found comes from the definitions (docs/schedule.md), written down anew here and in
// obligations.h: no code is shared with what writes programs.
#ifndef RINGZERO_SHARDING_MEANING_H_
#define RINGZERO_SHARDING_MEANING_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "sharding/linked_ring.h"
#include "sharding/plan.h"
#include "sharding/program.h"

namespace ringzero {

// FailedPrecondition, naming worker, line and operation, unless
// - every operation has the fields and operands of its kind, and is listed once;
// - nothing waits in a circle for hazards and messages;
// - computing reads the versions of the update rule, and waits for the tokens of the stagger;
// - every sum has each gradient once and in order, and every stage's updates follow each other;
// - statistics, metrics, norms and what is collected are those of their micro-batches;
// - a held copy is there from its first read to its last.
// Errors of LinkedRing::Join, too. `order`: another order for each number; all mean the same.
absl::Status CheckMeaning(const Plan& plan, std::span<const Program> programs, uint64_t order = 0);
// The same of programs that are joined already.
absl::Status CheckMeaning(const Plan& plan, const LinkedRing& ring, uint64_t order = 0);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_MEANING_H_
