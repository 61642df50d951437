// Operands: names the blocks of one worker's program while the program is written, in its order.
//
//   Operands operands(plan, self);
//   MemoryBlock block = operands.ReceivedCopy(receive);   // the slot that this message comes into
//   Uses uses = operands.Parameters(j, v, copy);          // where this worker has that version
//
// Message n of a channel has slot n mod W; whoever names a slot anew waits for all that used it.
// The names are those of docs/blocks.md.
#ifndef RINGZERO_SHARDING_PROGRAM_OPERANDS_H_
#define RINGZERO_SHARDING_PROGRAM_OPERANDS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sharding/plan.h"
#include "sharding/program/block.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

// Where whoever has the masters of stage j has version v as it travels: θ or what is predicted.
MemoryBlock VersionBlock(const Plan& plan, StageId j, Version v);
// And where the masters of version v are: apart, or that version itself. Masters that stream come
// there for a collection, those of all stages one after the other.
MemoryBlock MastersBlock(const Plan& plan, StageId j, Version v);
// Whether it is a version, or a prediction, that lies in a file.
inline bool LiesInFile(const Plan& plan, const MemoryBlock& block) {
  const bool version = block.kind == BlockKind::kVersion || block.kind == BlockKind::kPrediction;
  return version && plan.stage(block.stage).streams_parameters;
}
// The slot in which updates make it: behind those that are read, a prediction behind a version.
inline MemoryBlock MadeSlot(const Plan& plan, BlockKind kind) {
  const int place = kind == BlockKind::kPrediction ? 1 : 0;
  return {.kind = BlockKind::kResident, .index = plan.resident_slots + place};
}
// Whether a Load or an Unload moves bytes: a Load of what is in its slot already does not.
bool MovesVersion(const auto& op) {
  const bool fills = op.kind == OpKind::kLoad && op.uses[1].how == How::kWrite;
  return fills || op.kind == OpKind::kUnload;
}

// How many blocks there are of a received or begun kind, which differ in their index alone.
int BlocksOf(const Plan& plan, BlockKind kind, Channel channel);

class Operands {
 public:
  // `plan` must outlive this.
  Operands(const Plan& plan, WorkerId self)
      : plan_(plan), self_(self), batches_(plan.stages.size()) {}

  // What reads version v of stage j, of traveller `copy`; nothing for a stage without parameters.
  Uses Parameters(StageId j, Version v, Copy copy) const;
  // Where a received copy comes into; it is what Parameters names from now on.
  MemoryBlock ReceivedCopy(const Op& receive);
  // The held copy that a Release lets go of.
  MemoryBlock HeldCopy(StageId j, Version v) const;

  // Of a backward, and of the add behind it.
  MemoryBlock Gradient() const {
    return {.kind = BlockKind::kGradient, .index = Rest(gradients_, plan_.pending + 1)};
  }
  // After the add.
  void NextGradient() { ++gradients_; }

  // Where the sum of stage j is on this worker: begun here, received, or (a lone worker's) there
  // all the time.
  MemoryBlock BegunSum(StageId j);
  MemoryBlock ReceivedSum(const Op& receive);
  MemoryBlock Sum(StageId j) const { return sums_.at(j.value); }
  // Where the complete sum is from now on.
  void MoveSum(StageId j, const MemoryBlock& to) { sums_[j.value] = to; }

  // Of a forward, and of the Apply behind it.
  MemoryBlock BatchStatistics(StageId j) const {
    return {.kind = BlockKind::kBatchStatistics, .stage = j, .index = Rest(batches_[j.value], 2)};
  }
  void NextBatchStatistics(StageId j) { ++batches_[j.value]; }
  // Of an End, and of the Fold behind it; `copy`: kNone, or kEvaluation.
  MemoryBlock Losses(Copy copy) const;
  void NextLosses(Copy copy) { ++losses_[copy == Copy::kEvaluation]; }

  // Running statistics of a version, and what is kept of it for a collection.
  MemoryBlock Snapshot(StageId j, Version v);
  MemoryBlock Kept(Copy part, StageId j, Version v);

  // A token that comes before (`kind` kToken) or leaves for (kClock) operation `before` of a lap.
  MemoryBlock NextToken(BlockKind kind, int before);

  // The slot of the next message of a channel.
  MemoryBlock Slot(Channel channel, WorkerId from);

 private:
  // Versions in the order in which they are first named, counted from 0.
  class Ranks {
   public:
    int Of(Version v);

   private:
    std::map<Version, int> ranks_;  // of the last few
    int next_ = 0;
  };

  static int Rest(int64_t number, int blocks) { return static_cast<int>(number % blocks); }
  bool IsHeld(Copy copy) const { return plan_.holds_copies() && copy != Copy::kCollection; }
  bool IsLong(StageId j, Copy copy) const;

  const Plan& plan_;
  const WorkerId self_;
  std::map<std::pair<Channel, WorkerId>, int64_t> messages_;
  std::map<std::tuple<Channel, WorkerId, Copy, StageId>, int64_t> long_copies_;
  std::map<std::pair<Copy, StageId>, MemoryBlock> copies_;  // the last received
  std::map<int, MemoryBlock> sums_;
  std::vector<int64_t> batches_;  // by stage, so far
  std::map<std::pair<BlockKind, int>, int64_t> tokens_;
  int64_t gradients_ = 0, begun_ = 0;
  int64_t losses_[2] = {};
  Ranks snapshots_, collections_;
};

// The sends, receives and Collects of worker `self` in the collections of version v. So ordered
// that no worker holds more than its channels' slots of messages. (The Keeps stand with the
// updates.)
void AppendCollections(const Plan& plan, WorkerId self, Version v, Operands& operands,
                       std::vector<Instruction>& ops);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_OPERANDS_H_
