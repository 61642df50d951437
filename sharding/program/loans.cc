// Renames what is lent, and emits the words that bring it back.
#include "sharding/program/loans.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "sharding/program/operands.h"

namespace ringzero {
namespace {

MemoryBlock SumOf(StageId j) { return {.kind = BlockKind::kSum, .stage = j}; }

bool BeginsSum(const Instruction& op) {
  return op.kind == OpKind::kAdd && op.uses[1].how == How::kWrite;
}

bool IsReceive(const Instruction& op) { return op.kind == OpKind::kReceive; }

// The word that brings back the sum of iteration t.
Instruction ReturnOf(OpKind kind, StageId j, int t, WorkerId peer, const Use& use) {
  const Op word{.kind = kind,
                .channel = Channel::kReturn,
                .stage = j,
                .iteration = Iteration(t),
                .peer = peer};
  return Instruction(word, Uses{use});
}

// The word that brings back the copy of a loan.
Instruction ReturnOfCopy(OpKind kind, Op loan, const Use& use) {
  loan.kind = kind;
  loan.channel = Channel::kReturnCopy;
  loan.version = kNoVersion;
  return Instruction(loan, Uses{use});
}

// The words for copies that lie where they came to the host: of each right behind its last use
// here. So both ends of a channel have them in one order.
class CopyReturns {
 public:
  CopyReturns(const Loans& loans, WorkerId self) : loans_(loans), self_(self) {}

  std::vector<Instruction> AddTo(std::vector<Instruction> part) {
    for (size_t i = 0; i < part.size(); ++i) Note(part[i], static_cast<int>(i));
    for (const auto& [block, copy] : here_) past_.push_back(copy);
    std::ranges::sort(past_, {}, [](const Copied& c) { return std::pair(c.last_use, c.came); });
    std::vector<Instruction> all;
    auto next = past_.begin();
    for (size_t i = 0; i < part.size(); ++i) {
      all.push_back(std::move(part[i]));
      for (; next != past_.end() && next->last_use == static_cast<int>(i); ++next) {
        Append(*next, all);
      }
    }
    return all;
  }

 private:
  // A copy from when it comes to its last use.
  struct Copied {
    int came = 0;
    int last_use = 0;
    MemoryBlock block;
    std::optional<Op> borrowed, lent;  // the loans by which it comes, and goes on
  };

  void Note(const Instruction& op, int i) {
    if (IsReceive(op) && CarriesParameters(op.channel)) {
      const MemoryBlock& block = op.uses[0].block;
      const auto before = here_.find(block);
      if (before != here_.end()) past_.push_back(here_.extract(before).mapped());
      const bool is_lent = op.loan && loans_.HomeOf(self_, op).block.kind == BlockKind::kLent;
      if (!is_lent && block.kind != BlockKind::kLent) return;
      Copied& copy = here_[block] = {.came = i, .last_use = i, .block = block};
      if (is_lent) copy.borrowed = op;
      return;
    }
    for (const Use& use : op.uses) {
      const auto at = here_.find(use.block);
      if (at == here_.end()) continue;
      at->second.last_use = i;
      if (op.kind == OpKind::kSend && op.loan) at->second.lent = op;
    }
  }

  static void Append(const Copied& copy, std::vector<Instruction>& all) {
    if (copy.lent.has_value()) {
      all.push_back(ReturnOfCopy(OpKind::kReceive, *copy.lent, Writing(Role::kTarget, copy.block)));
    }
    if (copy.borrowed.has_value()) {
      all.push_back(
          ReturnOfCopy(OpKind::kSend, *copy.borrowed, Writing(Role::kSource, copy.block)));
    }
  }

  const Loans& loans_;
  const WorkerId self_;
  std::map<MemoryBlock, Copied> here_;
  std::vector<Copied> past_;
};

}  // namespace

Loans::Loans(const Plan& plan) : plan_(plan), lends_(plan.lends()) {
  for (const int count : plan.hosts) first_.insert(first_.end(), count, std::ssize(first_));
  first_.resize(static_cast<size_t>(plan.workers));  // without hosts no worker shares
}

WorkerId Loans::LastBeside(WorkerId w) const {
  const auto end = std::upper_bound(first_.begin(), first_.end(), first_[w.value]);
  return WorkerId(static_cast<int>(end - first_.begin()) - 1);
}

bool Loans::IsLent(WorkerId self, const Op& message) const {
  if (!IsMessage(message.kind) || !Share(self, message.peer)) return false;
  if (CarriesSums(message.channel)) return true;
  const bool held = plan_.holds_copies() && BringsHeldCopies(message.channel);
  return CarriesParameters(message.channel) && !(held && plan_.hosts.size() > 1);
}

// Back from worker to worker, as long as each has borrowed it.
WorkerId Loans::HomeOfCopy(WorkerId self, const Op& loan) const {
  const WorkerId owner = plan_.owner(loan.stage);
  WorkerId home = loan.peer;
  MicroBatch m{self, loan.iteration, loan.lap};
  while (home != owner) {
    CopySource source;
    if (loan.copy == Copy::kEvaluation) {
      source = EvaluationSourceOf(plan_, home, loan.stage);
    } else {
      m = *PreviousMicroBatch(plan_, m);
      source = SourceOf(rule_, m, loan.stage);
    }
    if (!Share(home, source.from)) break;
    home = source.from;
  }
  return home;
}

LentBlock Loans::HomeOf(WorkerId self, const Op& loan) const {
  if (CarriesSums(loan.channel)) return {FirstBeside(self), SumOf(loan.stage)};
  const WorkerId owner = plan_.owner(loan.stage);
  if (loan.channel == Channel::kCollection) {
    return {owner, MastersBlock(plan_, loan.stage, loan.version)};
  }
  const WorkerId home = plan_.hosts.size() == 1 ? owner : HomeOfCopy(self, loan);
  if (home == owner) return {owner, VersionBlock(plan_, loan.stage, loan.version)};
  return {home, {.kind = BlockKind::kLent, .copy = loan.copy, .stage = loan.stage}};
}

MemoryBlock LoanWriter::NextCell(const Instruction& receive) {
  MemoryBlock cell{.kind = BlockKind::kCell, .copy = receive.copy, .stage = receive.stage};
  if (CarriesSums(receive.channel)) cell.channel = receive.channel;
  cell.index = static_cast<int>(cells_[{cell.channel, cell.copy, cell.stage}]++ % 2);
  return cell;
}

MemoryBlock LoanWriter::NameOf(const Instruction& op, const MemoryBlock& slot) {
  const bool has_sums = loans_.HasSums(self_);
  if (BeginsSum(op)) return has_sums ? SumOf(op.stage) : slot;
  if (!IsReceive(op)) return slot;
  // It comes home, or from the host before.
  if (has_sums && (op.channel == Channel::kSum || (op.loan && op.channel == Channel::kRetire))) {
    return SumOf(op.stage);
  }
  // What stays longer than a stage has a name that lasts as long.
  if (op.loan) return slot.kind == BlockKind::kSlot ? NextCell(op) : slot;
  const bool is_copy = slot.kind == BlockKind::kSlot || slot.kind == BlockKind::kStageSlot;
  if (!is_copy || !BringsHeldCopies(op.channel) || !loans_.LendsOn(self_)) return slot;
  return {.kind = BlockKind::kLent, .copy = op.copy, .stage = op.stage};
}

void LoanWriter::Rename(Instruction& op) {
  for (Use& use : op.uses) {
    const auto name = names_.find(use.block);
    if (use.how != How::kWrite && name != names_.end()) use.block = name->second;
  }
  for (Use& use : op.uses) {
    if (use.how != How::kWrite) continue;
    const MemoryBlock name = NameOf(op, use.block);
    if (name == use.block) {
      names_.erase(name);
    } else {
      names_.insert_or_assign(std::exchange(use.block, name), name);
    }
  }
}

WorkerId LoanWriter::LastUserOfSum(StageId j) const {
  const WorkerId last = loans_.LastBeside(self_), owner = plan_.owner(j);
  return last == SumsEndAt(plan_) && loans_.Share(last, owner) ? owner : last;
}

bool LoanWriter::ReturnsSum(StageId j, int t) const {
  const bool is_last = t + 1 >= plan_.iterations;
  if (t < plan_.first_iteration || is_last) return false;
  if (LastUserOfSum(j) == loans_.FirstBeside(self_)) return false;
  const Version next = ReadVersion(loans_.rule(), {WorkerId(0), Iteration(t + 1), Lap(0)}, j);
  return next != Version(t + 1);
}

bool LoanWriter::UsesSumLast(const Instruction& op) const {
  const bool is_send = op.kind == OpKind::kSend && !op.loan && CarriesSums(op.channel);
  const bool updates = op.kind == (plan_.takes_sums() ? OpKind::kSquares : OpKind::kUpdate);
  if (!is_send && !updates) return false;
  const MemoryBlock& sum = op.uses[0].block;
  if (sum.kind != BlockKind::kCell || !CarriesSums(sum.channel)) return false;
  if (op.channel != Channel::kSum) return true;
  // To the next host. What the last worker passes on in an iteration is for another lap.
  return op.lap.value + 1 == plan_.laps && self_ != SumsEndAt(plan_);
}

void LoanWriter::ReturnMasters(std::vector<Instruction>& lowered) const {
  const Instruction& last = lowered.back();
  if (last.stage == kNoStage || !plan_.stage(last.stage).streams_masters) return;
  const WorkerId owner = plan_.owner(last.stage);
  if (last.kind == OpKind::kSend && last.channel == Channel::kCollection && last.loan) {
    const Use home = Writing(Role::kTarget, last.uses[0].block);
    lowered.push_back(ReturnOfCopy(OpKind::kReceive, last, home));
  } else if (last.kind == OpKind::kCollect && last.copy == Copy::kNone && owner != self_ &&
             loans_.Share(self_, owner)) {
    Op loan = last;
    loan.copy = Copy::kCollection;
    loan.peer = owner;
    const Use cell = Writing(Role::kSource, last.uses[0].block);
    lowered.push_back(ReturnOfCopy(OpKind::kSend, loan, cell));
  }
}

std::vector<Instruction> LoanWriter::Lower(std::vector<Instruction> part) {
  std::vector<Instruction> lowered;
  for (Instruction& op : part) {
    op.loan = loans_.IsLent(self_, op);
    Rename(op);
    const StageId j = op.stage;
    const int t = op.iteration.value;
    const bool names_home =
        BeginsSum(op) || (IsReceive(op) && op.channel == Channel::kSum && op.lap.value == 0);
    if (names_home && loans_.HasSums(self_) && ReturnsSum(j, t - 1)) {
      const Use home = Writing(Role::kTarget, SumOf(j));
      lowered.push_back(ReturnOf(OpKind::kReceive, j, t - 1, LastUserOfSum(j), home));
    }
    lowered.push_back(std::move(op));
    ReturnMasters(lowered);
    const Instruction& user = lowered.back();
    if (!UsesSumLast(user) || !ReturnsSum(j, t)) continue;
    // It waits for all who use the sum here.
    const Use cell = Writing(Role::kSource, user.uses[0].block);
    lowered.push_back(ReturnOf(OpKind::kSend, j, t, loans_.FirstBeside(self_), cell));
  }
  if (plan_.hosts.size() == 1) return lowered;
  return CopyReturns(loans_, self_).AddTo(std::move(lowered));
}

}  // namespace ringzero
