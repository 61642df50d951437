// Writes the operations of collections.
#include <algorithm>

#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

// The operations of one worker in one collection.
class CollectionWriter {
 public:
  CollectionWriter(const Plan& plan, WorkerId self, const Collection& collection, Version v,
                   Operands& operands, std::vector<Instruction>& ops)
      : plan_(plan),
        self_(self),
        collection_(collection),
        version_(v),
        operands_(operands),
        ops_(ops) {}

  void Write() {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StagePlan& stage = plan_.stages[j];
      ReceiveSnapshot(StageId(j));
      Part(StageId(j), Copy::kCollection, stage.parameter_bytes);
      if (collection_.parameters_only) continue;
      Part(StageId(j), Copy::kGradient, stage.sum_bytes);
      Part(StageId(j), Copy::kState, stage.sum_bytes > 0 ? stage.state_bytes : 0);
    }
  }

 private:
  // Evaluations have brought theirs already; the last worker has its own; of the first version
  // there are none.
  void ReceiveSnapshot(StageId j) {
    const WorkerId last(plan_.workers - 1);
    if (collection_.worker != self_ || self_ == last || plan_.stage(j).buffer_bytes == 0) return;
    if (IsEvaluated(plan_, version_) || version_.value == plan_.first_iteration) return;
    ops_.emplace_back(Op{.kind = OpKind::kReceive,
                         .channel = Channel::kSnapshots,
                         .stage = j,
                         .iteration = Iteration(version_.value),
                         .peer = last},
                      Uses{Writing(Role::kTarget, operands_.Snapshot(j, version_))});
  }

  void Part(StageId j, Copy part, int64_t bytes) {
    const bool parameters = part == Copy::kCollection;
    Op op{.copy = part, .stage = j, .iteration = Iteration(version_.value)};
    if (parameters) op.version = VersionAfter(plan_, j, version_.value);
    const WorkerId owner = KeepsFor(plan_, collection_.worker, j);
    MemoryBlock shown;  // where whoever collects has sum or state
    if (!parameters && owner == self_ && bytes > 0) shown = operands_.Kept(part, j, version_);
    if (parameters && owner == self_ && plan_.stage(j).streams_masters) KeepMasters(op);
    if (owner != collection_.worker && bytes > 0) {
      op.channel = parameters ? Channel::kCollection : Channel::kStates;
      if (self_ == owner) {
        op.kind = OpKind::kSend;
        op.peer = collection_.worker;
        const MemoryBlock source = parameters ? MastersBlock(plan_, j, op.version) : shown;
        ops_.emplace_back(op, Uses{Reading(Role::kSource, source)});
      } else if (self_ == collection_.worker) {
        op.kind = OpKind::kReceive;
        op.peer = owner;
        shown = parameters ? operands_.ReceivedCopy(op) : operands_.Slot(op.channel, owner);
        ops_.emplace_back(op, Uses{Writing(Role::kTarget, shown)});
      }
    }
    // A stage's parameters are shown even if there are none: its statistics come with them.
    if (self_ != collection_.worker || (bytes == 0 && !parameters)) return;
    op.kind = OpKind::kCollect;
    op.channel = Channel::kNone;
    op.peer = kNoWorker;
    if (parameters) op.copy = Copy::kNone;
    ops_.emplace_back(op,
                      parameters ? Parameters(j, op.version) : Uses{Reading(Role::kKept, shown)});
  }

  void KeepMasters(Op op) {
    const StageId j = op.stage;
    op.kind = OpKind::kKeep;
    op.version = kNoVersion;
    ops_.emplace_back(op, Uses{Reading(Role::kState, {.kind = BlockKind::kState, .stage = j}),
                               Writing(Role::kKept, MastersBlock(plan_, j, Version(0))),
                               Reading(Role::kTier, {.kind = BlockKind::kTier, .stage = j})});
  }

  // A stage's parameters with its statistics.
  Uses Parameters(StageId j, Version v) {
    Uses uses = operands_.Parameters(j, v, Copy::kCollection);
    if (plan_.stage(j).buffer_bytes > 0 && version_.value > plan_.first_iteration) {
      uses.push_back(Reading(Role::kSnapshot, operands_.Snapshot(j, version_)));
    }
    return uses;
  }

  const Plan& plan_;
  const WorkerId self_;
  const Collection& collection_;
  const Version version_;
  Operands& operands_;
  std::vector<Instruction>& ops_;
};

}  // namespace

WorkerId KeepsFor(const Plan& plan, WorkerId worker, StageId j) {
  return plan.has_masters(worker, j) ? worker : plan.owner(j);
}

std::vector<Collection> CollectionsOf(const Plan& plan, Version v) {
  std::vector<Collection> collections;
  if (!plan.exchange) return collections;
  if (IsCollected(plan, v)) {
    collections.push_back({plan.collection.worker, plan.collection.parameters_only});
  }
  const bool shown = !collections.empty() && plan.collection.worker.value == 0;
  if (v.value == plan.iterations && !shown) {
    collections.push_back({WorkerId(0), /*parameters_only=*/true});
  }
  return collections;
}

std::vector<WorkerId> SnapshotReceivers(const Plan& plan, Version v) {
  const WorkerId last(plan.workers - 1);
  std::vector<WorkerId> receivers;
  if (IsEvaluated(plan, v)) {
    receivers.push_back(WorkerId(0));
  } else {
    for (const Collection& collection : CollectionsOf(plan, v)) {
      receivers.push_back(collection.worker);
    }
  }
  std::erase(receivers, last);
  std::ranges::sort(receivers);
  return receivers;
}

void AppendCollections(const Plan& plan, WorkerId self, Version v, Operands& operands,
                       std::vector<Instruction>& ops) {
  for (const Collection& collection : CollectionsOf(plan, v)) {
    CollectionWriter(plan, self, collection, v, operands, ops).Write();
  }
}

}  // namespace ringzero
