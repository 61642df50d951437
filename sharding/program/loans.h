// Loans: workers of one host need not copy what they send each other. The sender lends its block,
// and the receiver reads or writes it where it lies.
//
//   LoanWriter loans(plan, worker);
//   std::vector<Instruction> lowered = loans.Lower(writer.Next());   // part by part
//
// It turns a program whose messages come into slots into one whose copies and sums are loans
// wherever both workers are on one host (Plan::hosts). What is received is then a cell: a name for
// a block of another worker. All other messages stay as they are. It knows no rule of updates
// beyond who reads which version.
//
// - A sum's home is the first worker of a host: where worker 0 begins it, or where it comes from
//   the host before. Its last user on the host sends a word back, unless the home's next sum has a
//   gradient of the version that this update made.
// - A copy's home is a version of its owner, if that is on the host. It needs no word back: before
//   the owner overwrites the version, every reader has added its gradient to the sum of that
//   update.
// - A copy that comes from another host lies at the worker who received it, in memory by stage.
//   Each borrower sends a word to its lender, when nobody behind it reads the copy any more.
// - So does the worker who has collected masters that stream: their memory is the next stage's.
#ifndef RINGZERO_SHARDING_PROGRAM_LOANS_H_
#define RINGZERO_SHARDING_PROGRAM_LOANS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

// A message without payload: a loan, or the word that brings one back.
bool IsWord(const auto& op) { return op.loan || BringsBack(op.channel); }

// Where what is lent lies.
struct LentBlock {
  WorkerId home = kNoWorker;
  MemoryBlock block;
  auto operator<=>(const LentBlock&) const = default;
};

// What is lent, and where it lies. A function of the plan, which must outlive this.
// Thread-compatible.
class Loans {
 public:
  explicit Loans(const Plan& plan);

  // Whether both are on one host of a plan that lends.
  bool Share(WorkerId a, WorkerId b) const { return first_[a.value] == first_[b.value] && lends_; }
  // The first and the last worker of a worker's host.
  WorkerId FirstBeside(WorkerId w) const { return WorkerId(first_[w.value]); }
  WorkerId LastBeside(WorkerId w) const;
  // Whether sums that are lent lie at this worker.
  bool HasSums(WorkerId w) const { return FirstBeside(w) == w && LendsOn(w); }
  // Whether this worker may pass on to the next by a loan.
  bool LendsOn(WorkerId w) const { return Share(w, WorkerId((w.value + 1) % workers())); }

  // Whether a message in the program of `self` is a loan. Copies that are held (stages 1 and 2 of
  // ZeRO) are lent where all workers are on one host.
  bool IsLent(WorkerId self, const Op& message) const;
  // Where the block lies that `self` borrows by this loan.
  LentBlock HomeOf(WorkerId self, const Op& loan) const;

  const UpdateRule& rule() const { return rule_; }

 private:
  int workers() const { return static_cast<int>(first_.size()); }
  WorkerId HomeOfCopy(WorkerId self, const Op& loan) const;

  const Plan& plan_;
  const UpdateRule rule_{plan_};
  const bool lends_;
  std::vector<int> first_;  // by worker: the first of its host
};

// Not thread-safe.
class LoanWriter {
 public:
  // `plan` must outlive this.
  LoanWriter(const Plan& plan, WorkerId self) : plan_(plan), loans_(plan), self_(self) {}
  // The next part of the program.
  std::vector<Instruction> Lower(std::vector<Instruction> part);

 private:
  // What a block that is written is called from now on.
  MemoryBlock NameOf(const Instruction& op, const MemoryBlock& slot);
  MemoryBlock NextCell(const Instruction& receive);
  void Rename(Instruction& op);
  // Behind a loan of masters that stream, and behind its use.
  void ReturnMasters(std::vector<Instruction>& lowered) const;

  // Whether the sum of iteration t at this host's home is given back by a word; and by whom.
  bool ReturnsSum(StageId j, int t) const;
  WorkerId LastUserOfSum(StageId j) const;
  // Whether `op` is the last here to use a sum that this worker has borrowed.
  bool UsesSumLast(const Instruction& op) const;

  const Plan& plan_;
  const Loans loans_;
  const WorkerId self_;
  absl::flat_hash_map<MemoryBlock, MemoryBlock> names_;          // of slots
  std::map<std::tuple<Channel, Copy, StageId>, int64_t> cells_;  // so far
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_LOANS_H_
