// Which blocks a plan gives to a worker.
#include "sharding/block_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/buffer.h"
#include "base/status.h"
#include "sharding/collections.h"
#include "sharding/label.h"
#include "sharding/operands.h"
#include "sharding/program.h"
#include "sharding/schedule.h"
#include "sharding/verify.h"

namespace ringzero {
namespace {

// The blocks of one worker, stage by stage.
class TableWriter {
 public:
  TableWriter(const Plan& plan, WorkerId self, std::span<const int64_t> moment_bytes)
      : plan_(plan), self_(self), moment_bytes_(moment_bytes) {}

  std::vector<OwnBlock> Write() {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (plan_.has_masters(self_, StageId(j))) Owned(StageId(j));
      Sum(StageId(j));
      Kept(StageId(j));
    }
    Begun();
    return std::move(blocks_);
  }

 private:
  void Add(const MemoryBlock& block, int64_t bytes, Access access, int64_t MemoryBytes::*category) {
    if (bytes > 0) blocks_.push_back({block, bytes, access, category});
  }
  bool Trains(StageId j) const { return plan_.exchange && plan_.stage(j).sum_bytes > 0; }

  // What whoever has the masters of a stage keeps of it.
  void Owned(StageId j) {
    const StagePlan& stage = plan_.stage(j);
    // Where all workers have all masters, none of them travels.
    const bool travels = plan_.exchange && plan_.zero_stage > 0 && plan_.workers > 1;
    const Access access = travels ? Access::kLentToRead : Access::kPrivate;
    const bool apart = stage.master_bytes > 0;
    // An update goes from one version to the next: these two name all blocks that it uses.
    const int versions = Trains(j) ? 2 : 1;
    for (int v = 0; v < versions; ++v) {
      const MemoryBlock masters = MastersBlock(plan_, j, Version(v));
      if (v > 0 && masters == MastersBlock(plan_, j, Version(0))) continue;  // in place
      Add(masters, stage.collected_bytes(), access,
          v == 0 ? &MemoryBytes::masters : &MemoryBytes::versions);
    }
    for (int v = 0; v < versions && apart; ++v) {
      const MemoryBlock version = VersionBlock(plan_, j, Version(v));
      if (v > 0 && version == VersionBlock(plan_, j, Version(0))) continue;
      Add(version, stage.parameter_bytes, access, &MemoryBytes::versions);
    }
    for (int t = 0; t < 2 && IsPredicted(plan_, j); ++t) {
      Add(VersionBlock(plan_, j, Prediction(t)), stage.parameter_bytes, access,
          &MemoryBytes::versions);
    }
    if (!Trains(j)) return;
    const int64_t moments = moment_bytes_.empty() ? 0 : moment_bytes_[j.value];
    Add({.kind = BlockKind::kState, .stage = j}, moments, Access::kPrivate, &MemoryBytes::moments);
    if (!plan_.takes_sums()) return;
    Add({.kind = BlockKind::kTaken, .stage = j}, stage.sum_bytes, Access::kPrivate,
        &MemoryBytes::taken);
  }

  // A lone worker's sum, and what sums that are lent lie in.
  void Sum(StageId j) {
    if (self_.value > 0 || !Trains(j) || (plan_.workers > 1 && !plan_.lends())) return;
    Add({.kind = BlockKind::kSum, .stage = j}, plan_.stage(j).sum_bytes,
        plan_.lends() ? Access::kLentToWrite : Access::kPrivate, &MemoryBytes::sums);
  }

  // Otherwise worker 0 begins all sums in a few blocks.
  void Begun() {
    if (self_.value > 0 || plan_.workers == 1 || plan_.lends()) return;
    int64_t bytes = 0;
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (Trains(StageId(j))) bytes = std::max(bytes, plan_.stages[j].sum_bytes);
    }
    for (int b = 0; b < BlocksOf(plan_, BlockKind::kBegun, Channel::kNone); ++b) {
      Add({.kind = BlockKind::kBegun, .index = b}, bytes, Access::kExchanged, &MemoryBytes::sums);
    }
  }

  // What is kept for collections: of two at once, as the program names it.
  void Kept(StageId j) {
    const bool collects = plan_.collection.every > 0 || !plan_.collection.versions.empty();
    if (!collects || !Trains(j) || KeepsFor(plan_, plan_.collection.worker, j) != self_) return;
    for (const auto& [part, bytes] : {std::pair(Copy::kGradient, plan_.stage(j).sum_bytes),
                                      std::pair(Copy::kState, plan_.stage(j).state_bytes)}) {
      for (int index = 0; index < 2; ++index) {
        Add({.kind = BlockKind::kKept, .copy = part, .stage = j, .index = index}, bytes,
            plan_.workers > 1 ? Access::kExchanged : Access::kPrivate, nullptr);
      }
    }
  }

  const Plan& plan_;
  const WorkerId self_;
  const std::span<const int64_t> moment_bytes_;
  std::vector<OwnBlock> blocks_;
};

// Blocks that differ in their index alone. All are as large as the largest: a slot takes messages of
// several stages in turn.
struct Family {
  int64_t bytes = 0;
  bool exchanged = false;
};
using Families = std::map<MemoryBlock, Family>;  // by the block with index 0

int64_t NumbersBytes(int count) { return int64_t{count} * static_cast<int64_t>(sizeof(double)); }

// What `op` needs of a block that StateBlocks does not have. 0: another operation says it, or it has
// no bytes.
int64_t BytesFor(const Plan& plan, const Instruction& op, const MemoryBlock& block,
                 int metrics_count) {
  if (block.kind == BlockKind::kCell) return 0;
  if (IsMessage(op.kind)) return MessageBytes(plan, op, metrics_count);
  switch (block.kind) {
    case BlockKind::kStatistics:
    case BlockKind::kSnapshot: return plan.stage(op.stage).buffer_bytes;
    case BlockKind::kMetrics:
    case BlockKind::kReport: return NumbersBytes(std::max(1, metrics_count));
    case BlockKind::kSquares: return NumbersBytes(plan.stage(block.stage).trained_parameters);
    case BlockKind::kNorm: return NumbersBytes(1);
    default: return 0;
  }
}

void Note(const Plan& plan, const Instruction& op, int metrics_count, Families& families) {
  for (const Use& use : op.uses) {
    const int64_t bytes = BytesFor(plan, op, use.block, metrics_count);
    if (bytes == 0) continue;
    MemoryBlock first = use.block;
    first.index = 0;
    Family& family = families[first];
    family.bytes = std::max(family.bytes, bytes);
    family.exchanged = family.exchanged || IsMessage(op.kind);
  }
}

// "masters"; "pools" for a block that the forecast does not count.
std::string CategoryName(const OwnBlock& own) {
  for (const MemoryCategory& category : MemoryCategories()) {
    if (category.bytes == own.category) return category.name;
  }
  return "pools";
}

}  // namespace

std::string ToString(Access access) {
  switch (access) {
    case Access::kPrivate: return "private";
    case Access::kLentToRead: return "lent to read";
    case Access::kLentToWrite: return "lent to write";
    case Access::kExchanged: return "exchanged";
  }
  return "?";
}

std::vector<OwnBlock> StateBlocks(const Plan& plan, WorkerId self,
                                  std::span<const int64_t> moment_bytes) {
  return TableWriter(plan, self, moment_bytes).Write();
}

absl::StatusOr<std::vector<OwnBlock>> MessageBlocks(const Plan& plan, WorkerId self,
                                                    int metrics_count) {
  std::vector<OwnBlock> blocks;
  if (!plan.exchange) return blocks;
  std::set<MemoryBlock> states;
  for (const OwnBlock& own : StateBlocks(plan, self, {})) states.insert(own.block);
  Families families;
  // All kinds of messages are in a short run.
  const Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(ProgramWriter writer, ProgramWriter::Create(shortened, self, Iteration(0)));
  while (writer.part().has_value()) {
    for (const Instruction& op : writer.Next()) Note(plan, op, metrics_count, families);
  }
  for (const auto& [first, family] : families) {
    if (states.contains(first)) continue;
    OwnBlock own{.block = first,
                 .bytes = family.bytes,
                 .access = family.exchanged ? Access::kExchanged : Access::kPrivate};
    const int count = BlocksOf(plan, first.kind, first.channel);
    for (; own.block.index < count; ++own.block.index) blocks.push_back(own);
  }
  return blocks;
}

absl::StatusOr<std::vector<OwnBlock>> BlockTable(const Plan& plan, WorkerId self,
                                                 const BlockSizes& sizes) {
  std::vector<OwnBlock> table = StateBlocks(plan, self, sizes.moment_bytes);
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> more,
                      MessageBlocks(plan, self, sizes.metrics_count));
  table.insert(table.end(), more.begin(), more.end());
  return table;
}

int64_t MessageBytes(const Plan& plan, const Op& message, int metrics_count) {
  switch (message.channel) {
    case Channel::kForwardCopy:
    case Channel::kBackwardCopy:
    case Channel::kInject:
    case Channel::kEvaluation: return plan.stage(message.stage).parameter_bytes;
    case Channel::kCollection: return plan.stage(message.stage).collected_bytes();
    case Channel::kStates: {
      const StagePlan& stage = plan.stage(message.stage);
      return message.copy == Copy::kState ? stage.state_bytes : stage.sum_bytes;
    }
    case Channel::kSum:
    case Channel::kRetire:
    case Channel::kFinished: return plan.stage(message.stage).sum_bytes;
    case Channel::kBuffers:
    case Channel::kSnapshots: return plan.stage(message.stage).buffer_bytes;
    case Channel::kMetrics:
    case Channel::kReports: return NumbersBytes(std::max(1, metrics_count));
    case Channel::kNorms:
      return NumbersBytes(message.stage == kNoStage ? 1
                                                    : plan.stage(message.stage).trained_parameters);
    case Channel::kToken:
    case Channel::kReturn:
    case Channel::kNone: break;
  }
  return static_cast<int64_t>(kPayloadAlignment);
}

std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks) {
  std::string text = absl::StrCat("blocks of worker ", self.value, "\n");
  const auto row = [&](const std::string& name, const std::string& bytes,
                       const std::string& category, const std::string& access) {
    absl::StrAppendFormat(&text, "%-26s  %14s  %-10s  %s\n", name, bytes, category, access);
  };
  row("block", "bytes", "category", "access");
  int64_t total = 0;
  for (const OwnBlock& own : blocks) {
    row(ToString(own.block), absl::StrCat(own.bytes), CategoryName(own), ToString(own.access));
    total += own.bytes;
  }
  absl::StrAppendFormat(&text, "%-26s  %14d\n", "total", total);
  return text;
}

}  // namespace ringzero
