// Verify: refuses a plan whose programs are wrong, before anything runs.
//
//   RZ_ASSIGN_OR_RETURN(plan.window, ChooseWindow(plan));
//   RZ_RETURN_IF_ERROR(VerifyPlan(plan));                    // what the engine calls at its start
//
// Pure. What programs mean is found by a run on symbols and held against the definitions
// (CheckMeaning); progress and overwriting are decided in the graph of all waits (wait_graph.h).
#ifndef RINGZERO_SHARDING_CHECK_VERIFY_H_
#define RINGZERO_SHARDING_CHECK_VERIFY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"

namespace ringzero {

// Of the programs of ShortenedPlan(plan): InvalidArgument if the plan is none; FailedPrecondition,
// naming worker, line and operation, unless
// - every worker computes exactly what the plan says, in that order, and the programs mean what
//   CheckMeaning says: each read, sum, update, norm and message;
// - sends and receives match one to one, in order, with equal names;
// - no version is overwritten while anybody may still read it;
// - nothing waits in a circle, with plan.window slots per channel.
absl::Status VerifyPlan(const Plan& plan);

// What VerifyPlan checks, of programs that are linked.
absl::Status CheckRing(const Plan& plan, const LinkedRing& ring);

// --- meaning: one sequential run of all programs on symbols --------------------------------------
//
// Each block holds a symbol: θ_3 of stage 2, the sum of the gradients of micro-batches 8 to 11, the
// fold of five micro-batches' metrics. Operations run one after the other, in an order that the
// hazards on blocks allow (link.h); each must find what the definitions say (definitions.h), and
// leaves what it makes. Any other order that the hazards allow means the same, so one run stands
// for all timings. No code is shared with what writes programs.
//
// FailedPrecondition, naming worker, line and operation, unless
// - every operation has the fields and operands of its kind, and is listed once;
// - nothing waits in a circle for hazards and messages;
// - computing reads the versions of the update rule, and waits for the tokens of the stagger;
// - every sum has each gradient once and in order, and every stage's updates follow each other;
// - statistics, metrics, norms and what is collected are those of their micro-batches;
// - what is saved is what a run needs that begins there, and each Commit has all receipts;
// - a held copy is there from its first read to its last.
// `order`: another order for each number; all mean the same.
absl::Status CheckMeaning(const Plan& plan, const LinkedRing& ring, uint64_t order = 0);

// That a plan was verified: here, or by another process of the job.
//
//   RZ_ASSIGN_OR_RETURN(const PlanProof proof, ProvePlan(plan));   // resolves the window, too
//   proof.Covers(plan);                                            // true: need not be verified
class PlanProof {
 public:
  PlanProof() = default;  // covers no plan
  // What Write has written in another process, which had the proof. InvalidArgument: something
  // else.
  static absl::StatusOr<PlanProof> Parse(const std::string& text);
  std::string Write() const { return absl::StrCat(window_, " ", digest_); }

  // Of the plan that was verified.
  int window() const { return window_; }
  bool Covers(const Plan& plan) const { return Sha256Hex(PlanToString(plan)) == digest_; }

 private:
  friend absl::StatusOr<PlanProof> ProvePlan(const Plan& plan);
  explicit PlanProof(const Plan& plan)
      : digest_(Sha256Hex(PlanToString(plan))), window_(plan.window) {}

  std::string digest_;  // of its text
  int window_ = 0;
};

// ChooseWindow, and VerifyPlan with that window, in one go. Their errors.
absl::StatusOr<PlanProof> ProvePlan(const Plan& plan);

// Slots per channel. plan.window > 0: itself, or the error of VerifyPlan. 0: 2·ceil(S/N), with
// stagger at least q*+1, and where these deadlock the smallest that does not. FailedPrecondition if
// no window is large enough.
absl::StatusOr<int> ChooseWindow(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_CHECK_VERIFY_H_
