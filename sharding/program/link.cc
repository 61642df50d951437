// Finds, for each operation, the operations that it waits for: the hazards on the blocks that it
// names.
#include "sharding/program/link.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<std::vector<LinkedOp>> Linker::Append(std::span<const Instruction> ops) {
  std::vector<LinkedOp> all;
  all.reserve(ops.size());
  for (const Instruction& op : ops) {
    LinkedOp& linked = all.emplace_back();
    linked.op = op;
    const absl::Status resolved = Resolve(linked);
    // Lines as in the program's text, where the first is a head.
    if (!resolved.ok()) return Annotate(resolved, absl::StrCat("line ", next_ + 2));
    ++next_;
  }
  return all;
}

absl::Status Linker::Resolve(LinkedOp& linked) {
  const Instruction& op = linked.op;
  linked.uses = blocks_.Of(op.uses);
  for (size_t i = 0; i < linked.uses.size(); ++i) {
    const Use& use = op.uses[i];
    if (use.how != How::kWrite) {
      const bool is_written = hazards_.WriterOf(linked.uses[i].block) != kNoOp;
      if (!is_written && !IsThereAtTheStart(use.block)) {
        return FailedPrecondition("\"", ToString(op), "\": what lies in ", ToString(use.block),
                                  " does not come before it");
      }
      const bool copy = use.role == Role::kSource && CarriesParameters(op.channel);
      if (use.role == Role::kParameters || copy) NoteRead(use.block, linked);
    } else if (op.kind == OpKind::kRelease) {
      NoteRead(use.block, linked);
    }
  }
  static_cast<Before&>(linked) = hazards_.Append(op, linked.uses);
  return absl::OkStatus();
}

bool Linker::IsThereAtTheStart(const MemoryBlock& block) const {
  switch (block.kind) {
    case BlockKind::kVersion:
    case BlockKind::kMasters:
      if (block.stage == kNoStage) return false;
      [[fallthrough]];
    case BlockKind::kPrediction:
    case BlockKind::kState:
    case BlockKind::kTier: return plan_.has_masters(self_, block.stage);
    case BlockKind::kStatistics: return self_.value == 0;
    case BlockKind::kNorm: return plan_.first_iteration > 0;  // of the iterations before
    default: return false;
  }
}

void Linker::NoteRead(const MemoryBlock& block, LinkedOp& linked) const {
  const Op& op = linked.op;
  const StageId j = StageOfRead(op, linked.reads.size());
  Version version = op.version;
  if (j != op.stage) {
    version = op.kind == OpKind::kEvaluate ? VersionAfter(plan_, j, op.iteration.value)
                                           : ReadVersion(rule_, {self_, op.iteration, op.lap}, j);
  }
  linked.reads.push_back({j, version, block});
}

// The stage of the n-th parameters that an operation reads: its own, then those tied to it.
StageId Linker::StageOfRead(const Op& op, size_t n) const {
  if (plan_.stage(op.stage).parameter_bytes > 0 && n-- == 0) return op.stage;
  for (int i = 0; i < op.stage.value; ++i) {
    const bool tied = plan_.last_use(StageId(i)) == op.stage;
    if (tied && plan_.stages[i].parameter_bytes > 0 && n-- == 0) return StageId(i);
  }
  return op.stage;
}

int64_t Hazards::WriterOf(int block) const {
  return block < std::ssize(accesses_) ? accesses_[block].writer : kNoOp;
}

Before Hazards::Append(const Op& op, std::span<const NumberedUse> uses) {
  Before before;
  std::vector<int64_t>& after = before.after;
  for (const NumberedUse& use : uses) {
    if (use.block >= std::ssize(accesses_)) accesses_.resize(use.block + 1);
    const Access& access = accesses_[use.block];
    if (in_pieces_ && use.role == Role::kStaged) {
      before.behind = use.how == How::kWrite ? access.filler : access.writer;
      continue;
    }
    if (access.writer >= 0) after.push_back(access.writer);
    if (use.how == How::kRead) continue;
    after.insert(after.end(), access.readers.begin(), access.readers.end());
    if (access.computing >= 0) after.push_back(access.computing);
  }
  const bool computes = IsCompute(op.kind);
  for (const NumberedUse& use : uses) {
    Access& access = accesses_[use.block];
    if (use.how != How::kRead) {
      access = {.writer = next_, .filler = use.how == How::kWrite ? next_ : access.filler};
    } else if (computes) {
      access.computing = next_;
    } else {
      access.readers.push_back(next_);
    }
  }
  if (computes) {
    if (computed_ >= 0) after.push_back(computed_);
    computed_ = next_;
  }
  if (IsMessage(op.kind)) {
    const auto [last, first] = messages_.try_emplace({op.kind, op.channel, op.peer}, next_);
    if (!first) before.behind = std::exchange(last->second, next_);
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  ++next_;
  return before;
}

}  // namespace ringzero
