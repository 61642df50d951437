// Program: all that one worker does, in order: the plan written out.
//
//   RZ_ASSIGN_OR_RETURN(Program program, MakeProgram(plan, WorkerId(0), WholeRun(plan)));
//   std::cout << ToString(program);   // one operation a line, without operands
//
// Order: computing operations are in program order; the sends of one channel are in the receiver's
// order of use, and so are its receives. Of two operations that name one block, the first in the
// list uses it first. Nothing else is ordered by the list: Link (link.h) says what waits for what.
// A program of several iterations is the concatenation of its iterations' programs, and the program
// of an iteration is that of its parts.
#ifndef RINGZERO_SHARDING_PROGRAM_PROGRAM_H_
#define RINGZERO_SHARDING_PROGRAM_PROGRAM_H_

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"

namespace ringzero {

struct RunRequest;  // requests.h

// Iterations [begin, end). Iteration T = plan.iterations is the closing one: evaluation of θ_T and
// the collection of the result, no training.
struct IterationRange {
  Iteration begin{0};
  Iteration end{0};
  bool operator==(const IterationRange&) const = default;
};
IterationRange WholeRun(const Plan& plan);  // [plan.first_iteration, T + 1)

struct Program {
  WorkerId worker{0};
  IterationRange range;
  std::vector<Instruction> ops;
  bool operator==(const Program&) const = default;
};

// Pure. InvalidArgument if the plan fails CheckPlan or the range lies outside of WholeRun.
absl::StatusOr<Program> MakeProgram(const Plan& plan, WorkerId worker, IterationRange range);

// One lap of a program; an iteration's first brings what comes before it, its last what follows
// (updates, evaluations). The closing iteration is one part. However many laps there are, a program
// can be known a few of them at a time.
struct ProgramPart {
  Iteration iteration{0};
  Lap lap{0};
  auto operator<=>(const ProgramPart&) const = default;
};
// A worker knows its program so many laps beyond the one that it computes: neighbours, and owners'
// injections, may be one ahead of it.
inline constexpr int kLapsAhead = 2;

// A worker's program, part by part.
//
//   RZ_ASSIGN_OR_RETURN(const auto writer, ProgramWriter::Create(plan, worker, Iteration(0)));
//   while (writer->part()) linker.Append(writer->Next());
//
// Where the plan lends, what it writes is lowered (loans.h). Not thread-safe. It hides how programs
// are written (program.cc).
class ProgramWriter {
 public:
  // Begins with iteration `from`. Errors as MakeProgram's.
  static absl::StatusOr<std::unique_ptr<ProgramWriter>> Create(const Plan& plan, WorkerId worker,
                                                               Iteration from);
  virtual ~ProgramWriter() = default;

  // The part that Next writes; nothing: the run is over.
  virtual const std::optional<ProgramPart>& part() const = 0;
  virtual std::vector<Instruction> Next() = 0;
  // What worker 0 has asked for: before any part is written that depends on it (requests.h).
  virtual void Note(const RunRequest& request) = 0;
  virtual const Plan& plan() const = 0;  // as noted
};

// Whether `op`, by its name, belongs to `part` or a later one. Of an iteration that is known in
// part, what an evaluation or a collection does counts as later: when it comes depends on the rule.
bool IsFrom(const ProgramPart& part, const Op& op);

std::string ToString(const Program& program);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_PROGRAM_H_
