// Loans: workers of one host need not copy what they send each other. The sender lends its block, and
// the receiver reads or writes it where it lies.
//
//   LoanWriter loans(plan, worker);
//   std::vector<Instruction> lowered = loans.Lower(writer.Next());   // part by part
//
// It turns a program whose messages come into slots into one whose copies and sums are loans
// (Plan::lends). What is received is then a cell: a name for a block of another worker. All other
// messages stay as they are. It knows no rule of updates beyond who reads which version.
//
// - A copy's home is a version of its owner. It needs no word back: before the owner overwrites it,
//   every reader has added its gradient to the sum of that update.
// - A sum's home is worker 0. The owner's update is the last to use it. Then a word goes back, unless
//   worker 0 begins the next sum with a gradient of the version that this update made.
#ifndef RINGZERO_SHARDING_LOANS_H_
#define RINGZERO_SHARDING_LOANS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/block.h"
#include "sharding/plan.h"

namespace ringzero {

// Whether messages of this channel are loans.
bool IsLent(const Plan& plan, Channel channel);
// A message without payload: a loan, or the word that brings one back.
bool IsWord(const auto& op) { return op.loan || op.channel == Channel::kReturn; }

// Where what is lent lies.
struct LentBlock {
  WorkerId home = kNoWorker;
  MemoryBlock block;
  auto operator<=>(const LentBlock&) const = default;
};
LentBlock HomeOf(const Plan& plan, const Op& loan);

// Not thread-safe.
class LoanWriter {
 public:
  // `plan` must outlive this.
  LoanWriter(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {}
  // The next part of the program.
  std::vector<Instruction> Lower(std::vector<Instruction> part);

 private:
  // What a block that is written is called from now on.
  MemoryBlock NameOf(const Instruction& op, const MemoryBlock& slot);
  MemoryBlock NextCell(const Instruction& receive);

  const Plan& plan_;
  const WorkerId self_;
  absl::flat_hash_map<MemoryBlock, MemoryBlock> names_;          // of slots
  std::map<std::tuple<Channel, Copy, StageId>, int64_t> cells_;  // so far
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_LOANS_H_
