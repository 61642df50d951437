// Finds, for each operation, the operations that it waits for: the hazards on the blocks that it
// names.
#include "sharding/link.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/hazards.h"
#include "sharding/loans.h"
#include "sharding/schedule.h"

namespace ringzero {

class Linker::State {
 public:
  State(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {}

  const std::vector<MemoryBlock>& blocks() const { return blocks_.blocks(); }

  absl::StatusOr<std::vector<LinkedOp>> Append(std::span<const Instruction> ops) {
    base_ = next_;
    linked_.clear();
    linked_.reserve(ops.size());
    for (const Instruction& op : ops) {
      LinkedOp linked;
      linked.op = op;
      // Lines as in the program's text, where the first is a head.
      const absl::Status resolved = Resolve(op, linked);
      if (!resolved.ok()) return Annotate(resolved, absl::StrCat("line ", next_ + 2));
      std::sort(linked.after.begin(), linked.after.end());
      linked.after.erase(std::unique(linked.after.begin(), linked.after.end()), linked.after.end());
      linked_.push_back(std::move(linked));
      ++next_;
    }
    return std::move(linked_);
  }

 private:
  absl::Status Resolve(const Instruction& op, LinkedOp& linked) {
    linked.uses = blocks_.Of(op.uses);
    NumberedUses taking = linked.uses;
    for (size_t i = 0; i < taking.size(); ++i) {
      const Use& use = op.uses[i];
      const int64_t from = hazards_.WriterOf(taking[i].block);
      if (use.how != How::kWrite) {
        if (from == kInitial && !IsThereAtTheStart(use.block)) {
          return FailedPrecondition("\"", ToString(linked.op), "\": what lies in ",
                                    ToString(use.block), " does not come before it");
        }
        Note(op, use, from, linked);
      } else if (op.kind == OpKind::kRelease) {
        NoteRead(op, use, from, linked);
      }
      if (Takes(op, use) && !IsShared(use)) taking[i].how = How::kReadWrite;
    }
    Before before = hazards_.Append(op, taking);
    linked.after = std::move(before.after);
    linked.behind = before.behind >= 0 ? before.behind : kNoOp;
    if (!plan_.lends()) Lend(linked);
    return absl::OkStatus();
  }

  bool IsThereAtTheStart(const MemoryBlock& block) const {
    switch (block.kind) {
      case BlockKind::kVersion:
      case BlockKind::kMasters:
      case BlockKind::kPrediction:
      case BlockKind::kState: return plan_.has_masters(self_, block.stage);
      case BlockKind::kStatistics: return self_.value == 0;
      default: return false;
    }
  }

  // Whether a use leaves nothing for others: the memory goes on with this operation.
  bool Takes(const Op& op, const Use& use) const {
    if (use.how == How::kWrite) return false;
    switch (use.role) {
      case Role::kSum:
        if (op.kind == OpKind::kSquares) return plan_.takes_sums();
        return op.kind == OpKind::kUpdate || use.how == How::kReadWrite;
      case Role::kStatistics:
        // After the run's last micro-batch no other worker takes them over.
        return use.how == How::kReadWrite || op.iteration.value == plan_.iterations;
      case Role::kFold: return true;
      case Role::kKept: return op.kind == OpKind::kCollect;
      case Role::kSource:
        return op.channel == Channel::kSum || op.channel == Channel::kRetire ||
               op.channel == Channel::kBuffers || op.channel == Channel::kMetrics ||
               op.channel == Channel::kReports || op.channel == Channel::kStates;
      default: return false;
    }
  }
  // A finished sum is taken by each of its readers: they share it.
  bool IsShared(const Use& use) const {
    return use.role == Role::kSum && plan_.spreads_sums() && use.block.kind != BlockKind::kTaken &&
           use.how == How::kRead;
  }

  // What the engine asks of an operand that operation `from` has left.
  void Note(const Instruction& op, const Use& use, int64_t from, LinkedOp& linked) {
    const bool copy = use.role == Role::kSource && CarriesParameters(op.channel);
    if (use.role == Role::kParameters || copy) {
      NoteRead(op, use, from, linked);
    } else if (Takes(op, use)) {
      linked.takes = from == kInitial ? kNoOp : from;
      if (op.kind == OpKind::kSnapshot) linked.snapshot = from;
      if (IsShared(use)) Count(from, linked);
    } else if (use.role == Role::kSum || use.role == Role::kSnapshot ||
               use.role == Role::kStatistics ||
               (op.kind == OpKind::kKeep && use.role == Role::kState)) {
      linked.snapshot = from;
      if (IsShared(use)) Count(from, linked);
    } else if (op.channel == Channel::kFinished || op.channel == Channel::kSnapshots) {
      linked.snapshot = from;
      Count(from, linked);
    }
  }
  void Count(int64_t from, LinkedOp& linked) {
    if (from < base_) return;
    ++linked_[from - base_].users;
    linked.shares.push_back(from);
  }

  void NoteRead(const Instruction& op, const Use& use, int64_t from, LinkedOp& linked) {
    const BlockKind kind = use.block.kind;
    Read read{.block = use.block, .op = from};
    read.owned = kind == BlockKind::kVersion || kind == BlockKind::kMasters ||
                 kind == BlockKind::kPrediction;
    read.held = kind == BlockKind::kHeld || kind == BlockKind::kHeldPrediction;
    read.stage = StageOfRead(op, linked.reads.size());
    read.version = read.stage == op.stage ? op.version : VersionOf(op, read.stage);
    if (!read.owned && !read.held) Count(from, linked);
    linked.reads.push_back(read);
  }

  // The stage of the n-th parameters that an operation reads: its own, then those tied to it.
  StageId StageOfRead(const Op& op, size_t n) const {
    if (plan_.stage(op.stage).parameter_bytes > 0 && n-- == 0) return op.stage;
    for (int i = 0; i < op.stage.value; ++i) {
      const bool tied = plan_.last_use(StageId(i)) == op.stage;
      if (tied && plan_.stages[i].parameter_bytes > 0 && n-- == 0) return StageId(i);
    }
    return op.stage;
  }
  Version VersionOf(const Op& op, StageId j) const {
    if (op.kind == OpKind::kEvaluate) return VersionAfter(plan_, j, op.iteration.value);
    return ReadVersion(rule_, {self_, op.iteration, op.lap}, j);
  }

  // Memory may be shared though the plan lends nothing. So a worker relays a copy, and lets go of it,
  // before it hands on its last part of the sum with which that version will be overwritten.
  void Lend(LinkedOp& linked) {
    const Op& op = linked.op;
    const bool relays = op.kind == OpKind::kSend && !linked.reads.empty() &&
                        !linked.reads[0].owned && !linked.reads[0].held;
    if (relays || op.kind == OpKind::kRelease) {
      if (plan_.stage(op.stage).sum_bytes == 0) return;
      const std::pair<Channel, WorkerId> line{op.channel, op.peer};
      lent_[{op.stage, op.version}][line] = next_;
    }
    if (op.kind != OpKind::kSend || plan_.spreads_sums()) return;
    const std::optional<Iteration> update = LastPartOf(op);
    if (!update.has_value()) return;
    for (const Version overwritten : OverwrittenVersions(plan_, *update)) {
      const auto lent = lent_.find({op.stage, overwritten});
      if (lent == lent_.end()) continue;
      for (const auto& [line, use] : lent->second) linked.after.push_back(use);
      lent_.erase(lent);
    }
  }

  // The update whose sum this send hands on, if this worker contributes nothing more to it.
  std::optional<Iteration> LastPartOf(const Op& send) const {
    if (send.channel == Channel::kRetire && send.lap == kNoLap) return send.iteration;
    if (send.channel != Channel::kSum) return std::nullopt;
    const MicroBatch receiver{send.peer, send.iteration, send.lap};
    const std::optional<MicroBatch> ours = PreviousMicroBatch(plan_, receiver);
    if (!ours || ours->lap.value != plan_.laps - 1) return std::nullopt;
    return ours->iteration;
  }

  const Plan plan_;
  const UpdateRule rule_{plan_};
  const WorkerId self_;
  int64_t next_ = 0;  // number of the operation being linked
  int64_t base_ = 0;  // number of linked_[0]
  std::vector<LinkedOp> linked_;

  BlockNumbers blocks_;
  Hazards hazards_;
  // By stage and version, the last relay of each channel, or the release.
  std::map<std::pair<StageId, Version>, std::map<std::pair<Channel, WorkerId>, int64_t>> lent_;
};

Linker::Linker(const Plan& plan, WorkerId self) : state_(std::make_unique<State>(plan, self)) {}
Linker::~Linker() = default;
const std::vector<MemoryBlock>& Linker::blocks() const { return state_->blocks(); }

absl::StatusOr<std::vector<LinkedOp>> Linker::Append(std::span<const Instruction> ops) {
  return state_->Append(ops);
}

}  // namespace ringzero
