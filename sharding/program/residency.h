// Residency: which versions that lie in files are in memory, and when each is loaded.
//
//   Residency residency(plan, worker);
//   ops = residency.AddLoads(next_part, std::move(ops));   // part by part, behind LoanWriter
//
// What computes reads parameters in blocks. Of a stage whose versions lie in a file
// (StagePlan::streams_parameters) it then reads a slot in memory, and a Load into that slot stands
// before it. Slots are the worker's own: nobody borrows them, so the blocks that operations name
// say all of their order. What other workers read is the file.
#ifndef RINGZERO_SHARDING_PROGRAM_RESIDENCY_H_
#define RINGZERO_SHARDING_PROGRAM_RESIDENCY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "sharding/program/program.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

struct StageVersion {
  StageId stage;
  Version version;
  bool operator==(const StageVersion&) const = default;
};

// Slots for versions that are read in a known order. The version whose next read is furthest away
// makes room (Belady, 1966: no other choice loads less often). The version that was read just
// before never does: the next load goes on beside its use. Not thread-safe.
class FurthestSlots {
 public:
  explicit FurthestSlots(int slots) : slots_(static_cast<size_t>(slots)) {}

  struct Place {
    int slot = 0;
    bool is_there = false;
  };
  // Where upcoming[0], which is read now, is or comes to. The others are read behind it.
  Place Touch(std::span<const StageVersion> upcoming);

 private:
  struct Slot {
    std::optional<StageVersion> holds;
    int64_t used = -1;  // the last touch
  };
  std::vector<Slot> slots_;
  int64_t touches_ = 0;
};

// Not thread-safe.
class Residency {
 public:
  // `plan` must outlive this.
  Residency(const Plan& plan, WorkerId self)
      : plan_(plan), self_(self), slots_(plan.resident_slots) {}

  // `next`: the part behind this one, of which the worker's lap is looked at, too (without what it
  // evaluates and collects). A version that is read again is read in the next lap.
  std::vector<Instruction> AddLoads(const std::optional<ProgramPart>& next,
                                    std::vector<Instruction> part);

 private:
  // The parameters that it reads from a file; null: none.
  Use* Loaded(Instruction& op) const;
  void AppendLap(const ProgramPart& part, std::vector<StageVersion>& reads) const;

  const Plan& plan_;
  const UpdateRule rule_{plan_};
  const WorkerId self_;
  FurthestSlots slots_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_RESIDENCY_H_
