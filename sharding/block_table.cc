// Which blocks a plan gives to a worker.
#include "sharding/block_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sharding/collections.h"
#include "sharding/label.h"
#include "sharding/operands.h"
#include "sharding/schedule.h"

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

  // Worker 0 begins all sums, in memory of its own: one block for each stage.
  void Sum(StageId j) {
    if (self_.value > 0 || !Trains(j)) return;
    Access access = plan_.workers > 1 ? Access::kHandedOn : Access::kPrivate;
    if (plan_.lends()) access = Access::kLentToWrite;
    Add({.kind = BlockKind::kSum, .stage = j}, plan_.stage(j).sum_bytes, access,
        &MemoryBytes::sums);
  }

  // What is kept for collections: of two at once, as the program names it.
  void Kept(StageId j) {
    const bool collects = plan_.collection.every > 0 || !plan_.collection.versions.empty();
    if (!collects || !Trains(j) || KeepsFor(plan_, plan_.collection.worker, j) != self_) return;
    for (const auto& [part, bytes] : {std::pair(Copy::kGradient, plan_.stage(j).sum_bytes),
                                      std::pair(Copy::kState, plan_.stage(j).state_bytes)}) {
      for (int index = 0; index < 2; ++index) {
        Add({.kind = BlockKind::kKept, .copy = part, .stage = j, .index = index}, bytes,
            Access::kHandedOn, nullptr);
      }
    }
  }

  const Plan& plan_;
  const WorkerId self_;
  const std::span<const int64_t> moment_bytes_;
  std::vector<OwnBlock> blocks_;
};

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
    case Access::kHandedOn: return "handed on";
  }
  return "?";
}

std::vector<OwnBlock> OwnBlocks(const Plan& plan, WorkerId self,
                                std::span<const int64_t> moment_bytes) {
  return TableWriter(plan, self, moment_bytes).Write();
}

std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks) {
  std::string text = absl::StrCat("blocks of worker ", self.value, "\n");
  const auto row = [&](const std::string& name, const std::string& bytes,
                       const std::string& category, const std::string& access) {
    absl::StrAppendFormat(&text, "%-16s  %14s  %-10s  %s\n", name, bytes, category, access);
  };
  row("block", "bytes", "category", "access");
  int64_t total = 0;
  for (const OwnBlock& own : blocks) {
    row(ToString(own.block), absl::StrCat(own.bytes), CategoryName(own), ToString(own.access));
    total += own.bytes;
  }
  absl::StrAppendFormat(&text, "%-16s  %14d\n", "total", total);
  return text;
}

}  // namespace ringzero
