// The block table has the blocks that programs name, and no others.
#include "sharding/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

// The kinds that the table is about. A sum that others hand on is named as a slot.
bool IsInTable(const MemoryBlock& block) {
  switch (block.kind) {
    case BlockKind::kVersion:
    case BlockKind::kMasters:
    case BlockKind::kPrediction:
    case BlockKind::kState:
    case BlockKind::kTaken:
    case BlockKind::kSum:
    case BlockKind::kKept: return true;
    default: return false;
  }
}

TEST(BlockTableTest, HasWhatProgramsName) {
  int64_t kinds[kBlockKindCount] = {};
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    const std::vector<int64_t> moments(plan.stages.size(), 8);
    for (const Program& program : ProgramsOf(plan)) {
      std::set<MemoryBlock> named;
      for (const Instruction& op : program.ops) {
        for (const Use& use : op.uses) {
          if (IsInTable(use.block)) named.insert(use.block);
        }
      }
      std::set<MemoryBlock> table;
      for (const OwnBlock& own : OwnBlocks(plan, program.worker, moments)) {
        EXPECT_GT(own.bytes, 0);
        EXPECT_TRUE(table.insert(own.block).second) << ToString(own.block) << " is there twice";
        // Versions are rounded from masters at the start, also where nothing updates them.
        const bool frozen =
            own.block.kind == BlockKind::kMasters && plan.stage(own.block.stage).sum_bytes == 0;
        const bool reserved = own.access == Access::kHandedOn;
        EXPECT_TRUE(frozen || reserved || named.contains(own.block))
            << ToString(own.block) << " of worker " << program.worker.value << " is never used\n"
            << Describe(shape);
        ++kinds[static_cast<size_t>(own.block.kind)];
      }
      for (const MemoryBlock& block : named) {
        EXPECT_TRUE(table.contains(block))
            << ToString(block) << " of worker " << program.worker.value << " is not there\n"
            << Describe(shape);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  for (const BlockKind kind :
       {BlockKind::kVersion, BlockKind::kMasters, BlockKind::kPrediction, BlockKind::kState,
        BlockKind::kTaken, BlockKind::kSum, BlockKind::kKept}) {
    EXPECT_GT(kinds[static_cast<size_t>(kind)], 0) << ToString(MemoryBlock{.kind = kind});
  }
}

TEST(BlockTableTest, SaysWhoMayReachWhat) {
  Plan plan = MakeTestPlan(Shape("2x1 cdp_v1 clip_exact collect=1 masters owners_first"));
  plan.stages[0].parameter_bytes = 100;
  plan.stages[0].master_bytes = 200;
  plan.stages[0].sum_bytes = 120;
  plan.stages[0].state_bytes = 408;
  const std::vector<int64_t> moments = {400};
  EXPECT_EQ(DescribeBlocks(WorkerId(0), OwnBlocks(plan, WorkerId(0), moments)),
            "blocks of worker 0\n"
            "block                      bytes  category    access\n"
            "MA.s0.0                      200  masters     lent to read\n"
            "MA.s0.1                      200  versions    lent to read\n"
            "V.s0.0                       100  versions    lent to read\n"
            "V.s0.1                       100  versions    lent to read\n"
            "O.s0.0                       400  moments     private\n"
            "T.s0.0                       120  taken       private\n"
            "S.s0.0                       120  sums        handed on\n"
            "K.grad.s0.0                  120  pools       handed on\n"
            "K.grad.s0.1                  120  pools       handed on\n"
            "K.opt.s0.0                   408  pools       handed on\n"
            "K.opt.s0.1                   408  pools       handed on\n"
            "total                       2296\n");
  EXPECT_TRUE(OwnBlocks(plan, WorkerId(1), moments).empty());
  // Where all workers have all masters, none of them travels.
  plan.zero_stage = 0;
  plan.collection = {};
  EXPECT_THAT(DescribeBlocks(WorkerId(1), OwnBlocks(plan, WorkerId(1), moments)),
              HasSubstr("MA.s0.0                      200  masters     private\n"));
}

TEST(BlockTableTest, ALoneWorkerKeepsItsSums) {
  const Plan plan = MakeTestPlan(Shape("1x2 dp"));
  int sums = 0;
  for (const OwnBlock& own : OwnBlocks(plan, WorkerId(0), {})) {
    EXPECT_EQ(own.access, Access::kPrivate) << ToString(own.block);
    sums += own.block.kind == BlockKind::kSum ? 1 : 0;
  }
  EXPECT_EQ(sums, 2);
}

}  // namespace
}  // namespace ringzero
