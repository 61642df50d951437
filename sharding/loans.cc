// Renames what is lent, and emits the words that bring sums back.
#include "sharding/loans.h"

#include <utility>

#include "sharding/operands.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

constexpr WorkerId kHomeOfSums{0};

MemoryBlock SumOf(StageId j) { return {.kind = BlockKind::kSum, .stage = j}; }

bool CarriesSums(Channel channel) {
  return channel == Channel::kSum || channel == Channel::kRetire;
}

bool BeginsSum(const Instruction& op) {
  return op.kind == OpKind::kAdd && op.uses[1].how == How::kWrite;
}

// Whether the owner tells worker 0 that it is done with the sum of iteration t.
bool ReturnsSum(const Plan& plan, StageId j, int t) {
  const bool is_last = t + 1 >= plan.iterations;
  if (plan.owner(j) == kHomeOfSums || t < plan.first_iteration || is_last) return false;
  const Version next = ReadVersion(plan, {kHomeOfSums, Iteration(t + 1), Lap(0)}, j);
  return next != Version(t + 1);
}

// The word that brings back the sum of iteration t.
Op ReturnOf(StageId j, int t, WorkerId peer) {
  return {.channel = Channel::kReturn, .stage = j, .iteration = Iteration(t), .peer = peer};
}

}  // namespace

bool IsLent(const Plan& plan, Channel channel) {
  return plan.lends() && (CarriesSums(channel) || CarriesParameters(channel));
}

LentBlock HomeOf(const Plan& plan, const Op& loan) {
  if (CarriesSums(loan.channel)) return {kHomeOfSums, SumOf(loan.stage)};
  const bool masters = loan.channel == Channel::kCollection;
  return {plan.owner(loan.stage), masters ? MastersBlock(plan, loan.stage, loan.version)
                                          : VersionBlock(plan, loan.stage, loan.version)};
}

MemoryBlock LoanWriter::NextCell(const Instruction& receive) {
  MemoryBlock cell{.kind = BlockKind::kCell, .copy = receive.copy, .stage = receive.stage};
  if (CarriesSums(receive.channel)) cell.channel = receive.channel;
  cell.index = static_cast<int>(cells_[{cell.channel, cell.copy, cell.stage}]++ % 2);
  return cell;
}

MemoryBlock LoanWriter::NameOf(const Instruction& op, const MemoryBlock& slot) {
  if (BeginsSum(op)) return SumOf(op.stage);
  if (!op.loan || op.kind != OpKind::kReceive) return slot;
  if (CarriesSums(op.channel) && self_ == kHomeOfSums) return SumOf(op.stage);  // it comes home
  // What stays longer than a stage has a name that lasts as long.
  return slot.kind == BlockKind::kSlot ? NextCell(op) : slot;
}

std::vector<Instruction> LoanWriter::Lower(std::vector<Instruction> part) {
  std::vector<Instruction> lowered;
  for (Instruction& op : part) {
    op.loan = IsMessage(op.kind) && IsLent(plan_, op.channel);
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
    const int t = op.iteration.value;
    if (BeginsSum(op) && ReturnsSum(plan_, op.stage, t - 1)) {
      Op back = ReturnOf(op.stage, t - 1, plan_.owner(op.stage));
      back.kind = OpKind::kReceive;
      lowered.emplace_back(back, Uses{Writing(Role::kTarget, SumOf(op.stage))});
    }
    const OpKind last = plan_.takes_sums() ? OpKind::kSquares : OpKind::kUpdate;
    const bool returns = op.kind == last && ReturnsSum(plan_, op.stage, t);
    lowered.push_back(std::move(op));
    if (!returns) continue;
    const Instruction& user = lowered.back();
    Op back = ReturnOf(user.stage, t, kHomeOfSums);
    back.kind = OpKind::kSend;
    // It waits for all who use the sum here.
    lowered.emplace_back(back, Uses{Writing(Role::kSource, user.uses[0].block)});
  }
  return lowered;
}

}  // namespace ringzero
