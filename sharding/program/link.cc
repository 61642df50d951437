// Finds, for each operation, the operations that it waits for: the hazards on the blocks that it
// names.
#include "sharding/program/link.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

class Linker::State {
 public:
  State(const Plan& plan, WorkerId self) : plan_(plan), self_(self) {}

  const std::vector<MemoryBlock>& blocks() const { return blocks_.blocks(); }

  absl::StatusOr<std::vector<LinkedOp>> Append(std::span<const Instruction> ops) {
    linked_.clear();
    linked_.reserve(ops.size());
    for (const Instruction& op : ops) {
      LinkedOp linked;
      linked.op = op;
      // Lines as in the program's text, where the first is a head.
      const absl::Status resolved = Resolve(op, linked);
      if (!resolved.ok()) return Annotate(resolved, absl::StrCat("line ", next_ + 2));
      linked_.push_back(std::move(linked));
      ++next_;
    }
    return std::move(linked_);
  }

 private:
  absl::Status Resolve(const Instruction& op, LinkedOp& linked) {
    linked.uses = blocks_.Of(op.uses);
    for (size_t i = 0; i < linked.uses.size(); ++i) {
      const Use& use = op.uses[i];
      const int64_t from = hazards_.WriterOf(linked.uses[i].block);
      if (use.how != How::kWrite) {
        if (from == kInitial && !IsThereAtTheStart(use.block)) {
          return FailedPrecondition("\"", ToString(linked.op), "\": what lies in ",
                                    ToString(use.block), " does not come before it");
        }
        const bool copy = use.role == Role::kSource && CarriesParameters(op.channel);
        if (use.role == Role::kParameters || copy) NoteRead(op, use, linked);
      } else if (op.kind == OpKind::kRelease) {
        NoteRead(op, use, linked);
      }
    }
    Before before = hazards_.Append(op, linked.uses);
    linked.after = std::move(before.after);
    linked.behind = before.behind >= 0 ? before.behind : kNoOp;
    return absl::OkStatus();
  }

  bool IsThereAtTheStart(const MemoryBlock& block) const {
    switch (block.kind) {
      case BlockKind::kVersion:
      case BlockKind::kMasters:
      case BlockKind::kPrediction:
      case BlockKind::kState: return plan_.has_masters(self_, block.stage);
      case BlockKind::kStatistics: return self_.value == 0;
      case BlockKind::kNorm: return plan_.first_iteration > 0;  // of the iterations before
      default: return false;
    }
  }

  void NoteRead(const Instruction& op, const Use& use, LinkedOp& linked) {
    Read read{.block = use.block};
    read.stage = StageOfRead(op, linked.reads.size());
    read.version = read.stage == op.stage ? op.version : VersionOf(op, read.stage);
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

  const Plan plan_;
  const UpdateRule rule_{plan_};
  const WorkerId self_;
  int64_t next_ = 0;  // number of the operation being linked
  std::vector<LinkedOp> linked_;

  BlockNumbers blocks_;
  Hazards hazards_;
};

Linker::Linker(const Plan& plan, WorkerId self) : state_(std::make_unique<State>(plan, self)) {}
Linker::~Linker() = default;
const std::vector<MemoryBlock>& Linker::blocks() const { return state_->blocks(); }

absl::StatusOr<std::vector<LinkedOp>> Linker::Append(std::span<const Instruction> ops) {
  return state_->Append(ops);
}

int64_t Hazards::WriterOf(int block) const {
  return block < std::ssize(accesses_) ? accesses_[block].writer : -1;
}

Before Hazards::Append(const Op& op, std::span<const NumberedUse> uses) {
  Before before;
  std::vector<int64_t>& after = before.after;
  for (const NumberedUse& use : uses) {
    if (use.block >= std::ssize(accesses_)) accesses_.resize(use.block + 1);
    const Access& access = accesses_[use.block];
    if (access.writer >= 0) after.push_back(access.writer);
    if (use.how == How::kRead) continue;
    after.insert(after.end(), access.readers.begin(), access.readers.end());
    if (access.computing >= 0) after.push_back(access.computing);
  }
  const bool computes = IsCompute(op.kind);
  for (const NumberedUse& use : uses) {
    Access& access = accesses_[use.block];
    if (use.how != How::kRead) {
      access = {.writer = next_};
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
