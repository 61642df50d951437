// Joins and links given programs.
#include "tests/sharding/given_programs.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/program/link.h"

namespace ringzero {

absl::StatusOr<LinkedRing> Joined(const Plan& plan, const std::vector<Program>& programs) {
  if (std::ssize(programs) != plan.workers) return InvalidArgument("not a program per worker");
  LinkedRing ring;
  for (int w = 0; w < plan.workers; ++w) {
    const Program& program = programs[w];
    if (program.worker.value != w || program.range != WholeRun(plan)) {
      return InvalidArgument("not worker ", w, "'s program of the whole run");
    }
    BlockNumbers numbers;
    for (const Instruction& op : program.ops) {
      RingOp& added = ring.ops.emplace_back();
      static_cast<Op&>(added) = op;
      added.uses = numbers.Of(op.uses);
      added.loan = op.loan;
      added.worker = w;
    }
    ring.begin.push_back(ring.count());
    ring.blocks.push_back(numbers.blocks());
  }
  RZ_RETURN_IF_ERROR(ring.JoinMessages(plan));
  return ring;
}

absl::Status Link(const Plan& plan, LinkedRing& ring) {
  for (int w = 0; w < plan.workers; ++w) {
    const int base = ring.begin[w];
    const auto shift = [base](int64_t op) { return static_cast<int>(op >= 0 ? op + base : op); };
    std::vector<Instruction> ops;
    for (int i = base; i < ring.begin[w + 1]; ++i) ops.push_back(ring.InstructionOf(i));
    Linker linker(plan, WorkerId(w));
    RZ_ASSIGN_OR_RETURN(const std::vector<LinkedOp> linked,
                        Annotate(linker.Append(ops), absl::StrCat("worker ", w)));
    for (size_t i = 0; i < linked.size(); ++i) {
      RingOp& to = ring.ops[base + i];
      for (const int64_t after : linked[i].after) to.after.push_back(shift(after));
      to.behind = shift(linked[i].behind);
      for (const Read& read : linked[i].reads) to.reads.push_back({read.stage, read.version});
    }
  }
  ring.Finish(plan);
  return absl::OkStatus();
}

absl::Status CheckMeaning(const Plan& plan, const std::vector<Program>& programs, uint64_t order) {
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, Joined(plan, programs));
  return CheckMeaning(plan, ring, order);
}

absl::Status Verify(const Plan& plan, const std::vector<Program>& programs) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  RZ_ASSIGN_OR_RETURN(LinkedRing ring, Joined(plan, programs));
  RZ_RETURN_IF_ERROR(CheckMeaning(plan, ring));  // what links relies on it
  RZ_RETURN_IF_ERROR(Link(plan, ring));
  return CheckRing(plan, ring);
}

}  // namespace ringzero
