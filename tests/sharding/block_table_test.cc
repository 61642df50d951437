// The block table has the blocks that programs name, and no others.
#include "sharding/memory/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/program/operands.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

// What the model's library allocates, and names of what others lend.
bool IsElsewhere(const MemoryBlock& block) {
  switch (block.kind) {
    case BlockKind::kGradient:
    case BlockKind::kBatchStatistics:
    case BlockKind::kLosses:
    case BlockKind::kTier:
    case BlockKind::kCell: return true;
    default: return false;
  }
}

TEST(BlockTableTest, HasWhatProgramsName) {
  std::set<BlockKind> kinds;
  for (PlanShape shape : PairwiseShapes()) {
    shape.save_every = static_cast<int>(shape.seed % 3);
    const Plan plan = MakeTestPlan(shape);
    const std::vector<int64_t> moments(plan.stages.size(), 8);
    for (const Program& program : ProgramsOf(plan)) {
      std::map<MemoryBlock, int64_t> table;
      RZ_ASSIGN(const std::vector<OwnBlock> blocks,
                BlockTable(plan, program.worker, {.moment_bytes = moments}));
      for (const OwnBlock& own : blocks) {
        EXPECT_GT(own.bytes, 0);
        EXPECT_TRUE(table.emplace(own.block, own.bytes).second)
            << ToString(own.block) << " is there twice";
        kinds.insert(own.block.kind);
      }
      std::set<MemoryBlock> missing, borrowed;
      for (const Instruction& op : program.ops) {
        const bool borrows = op.loan && op.kind == OpKind::kReceive;
        if (borrows && op.uses[0].block.kind != BlockKind::kSum) borrowed.insert(op.uses[0].block);
        for (const Use& use : op.uses) {
          if (IsElsewhere(use.block) || borrowed.contains(use.block)) continue;
          if (LiesInFile(plan, use.block)) {
            EXPECT_FALSE(table.contains(use.block)) << ToString(use.block);
            continue;
          }
          const auto found = table.find(use.block);
          if (found == table.end()) missing.insert(use.block);
          if (found == table.end() || !IsMessage(op.kind) || op.loan) continue;
          EXPECT_GE(found->second, MessageBytes(plan, op, 1))
              << ToString(op) << " " << ToString(use.block) << "\n"
              << Describe(shape);
        }
      }
      for (const MemoryBlock& block : borrowed) {
        EXPECT_FALSE(table.contains(block)) << ToString(block) << "\n" << Describe(shape);
      }
      for (const MemoryBlock& block : missing) {
        ADD_FAILURE() << ToString(block) << " of worker " << program.worker.value
                      << " is not there\n"
                      << Describe(shape);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  for (int kind = 0; kind < kBlockKindCount; ++kind) {
    const MemoryBlock block{.kind = static_cast<BlockKind>(kind)};
    EXPECT_NE(kinds.contains(block.kind), IsElsewhere(block)) << ToString(block);
  }
}

// A short run tells of all blocks, whenever the run evaluates or collects.
TEST(BlockTableTest, LongRunsNeedNoOtherBlocks) {
  for (const char* shape :
       {"3x6 cdp_v1 zero=2 evaluate=7", "2x4 cdp_v2 zero=1 evaluate=3 collect=5",
        "4x4 dp zero=0 evaluate=5", "3x3 cdp_v1 laps=7 evaluate=4"}) {
    PlanShape longer = Shape(shape);
    longer.iterations = 23;
    const Plan plan = MakeTestPlan(longer);
    for (const Program& program : ProgramsOf(plan)) {
      std::map<MemoryBlock, int64_t> table;
      RZ_ASSIGN(const std::vector<OwnBlock> blocks, MessageBlocks(plan, program.worker, 1));
      for (const OwnBlock& own : blocks) table[own.block] = own.bytes;
      for (const Instruction& op : program.ops) {
        const bool comes = op.kind == OpKind::kReceive && !op.loan;
        if (!comes) continue;
        const auto found = table.find(op.uses[0].block);
        ASSERT_NE(found, table.end()) << shape << " " << WithOperands(op);
        EXPECT_GE(found->second, MessageBytes(plan, op, 1)) << shape << " " << WithOperands(op);
      }
    }
  }
}

// Stages of two sizes, whose messages take turns in an even number of slots.
TEST(BlockTableTest, ASlotIsAsLargeAsWhatComesIntoIt) {
  Plan plan = MakeTestPlan(Shape("2x8 dp"));
  for (int j = 0; j < 8; ++j) plan.stages[j].sum_bytes = j % 2 == 0 ? 1000 : 64;
  plan.window = 4;
  RZ_ASSIGN(const std::vector<OwnBlock> blocks, MessageBlocks(plan, WorkerId(1), 1));
  std::map<int64_t, int> sizes;
  for (const OwnBlock& own : blocks) {
    if (own.block.channel == Channel::kSum) ++sizes[own.bytes];
  }
  EXPECT_EQ(sizes, (std::map<int64_t, int>{{64, 2}, {1000, 2}}));
  plan.window = 5;  // slots and stages meet anew in each lap
  RZ_ASSIGN(const std::vector<OwnBlock> others, MessageBlocks(plan, WorkerId(1), 1));
  for (const OwnBlock& own : others) {
    if (own.block.channel != Channel::kSum) continue;
    EXPECT_EQ(own.bytes, 1000);
  }
}

TEST(BlockTableTest, SaysWhoMayReachWhat) {
  Plan plan = MakeTestPlan(Shape("2x1 cdp_v1 clip_exact collect=1 masters owners_first"));
  plan.stages[0].parameter_bytes = 100;
  plan.stages[0].master_bytes = 200;
  plan.stages[0].sum_bytes = 120;
  plan.stages[0].state_bytes = 408;
  const std::vector<int64_t> moments = {400};
  EXPECT_EQ(DescribeBlocks(WorkerId(0), StateBlocks(plan, WorkerId(0), moments)),
            "blocks of worker 0\n"
            "block                                bytes  category    access\n"
            "MA.s0.0                                200  masters     lent to read\n"
            "MA.s0.1                                200  versions    lent to read\n"
            "V.s0.0                                 100  versions    lent to read\n"
            "V.s0.1                                 100  versions    lent to read\n"
            "O.s0.0                                 400  moments     private\n"
            "T.s0.0                                 120  taken       private\n"
            "K.grad.s0.0                            120  pools       exchanged\n"
            "K.grad.s0.1                            120  pools       exchanged\n"
            "K.opt.s0.0                             408  pools       exchanged\n"
            "K.opt.s0.1                             408  pools       exchanged\n"
            "B.0                                    120  sums        exchanged\n"
            "B.1                                    120  sums        exchanged\n"
            "total                                 2416\n");
  EXPECT_TRUE(StateBlocks(plan, WorkerId(1), moments).empty());
  RZ_ASSIGN(const std::vector<OwnBlock> messages, MessageBlocks(plan, WorkerId(1), 3));
  const std::string text = DescribeBlocks(WorkerId(1), messages);
  for (const char* line : {"C.forward.w0.1                         100  pools       exchanged\n",
                           "C.sum.w0.0                             120  pools       exchanged\n",
                           "M.0                                     24  pools       exchanged\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // Where all workers have all masters, none of them travels.
  plan.zero_stage = 0;
  plan.collection = {};
  EXPECT_THAT(DescribeBlocks(WorkerId(1), StateBlocks(plan, WorkerId(1), moments)),
              HasSubstr("MA.s0.0                                200  masters     private\n"));
}

// Stages 0, 1 and 3 of 4 lie in files. Worker 0 has the smaller ones, worker 1 the largest, and
// worker 2 none.
TEST(BlockTableTest, VersionsInFilesComeThroughSlots) {
  for (const char* masters : {"", " masters"}) {
    Plan plan = MakeTestPlan(Shape(absl::StrCat("3x4 cdp_v1 one_host parameters", masters)));
    const int64_t bytes[] = {5000, 4096, 100, 20000};
    const int owners[] = {0, 0, 2, 1};
    for (int j = 0; j < 4; ++j) {
      plan.stages[j].parameter_bytes = bytes[j];
      plan.stages[j].owner = WorkerId(owners[j]);
    }
    for (int w = 0; w < 3; ++w) {
      std::map<int, int64_t> slots;
      std::set<int> versions;
      RZ_ASSIGN(const std::vector<OwnBlock> blocks, BlockTable(plan, WorkerId(w), {}));
      for (const OwnBlock& own : blocks) {
        if (own.block.kind == BlockKind::kVersion) versions.insert(own.block.stage.value);
        if (own.block.kind != BlockKind::kResident) continue;
        slots[own.block.index] = own.bytes;
        EXPECT_EQ(own.access, Access::kPrivate);
        EXPECT_EQ(own.category, &MemoryBytes::versions);
      }
      std::map<int, int64_t> wanted = {{0, 20480}, {1, 20480}};
      if (w < 2) wanted[2] = w == 0 ? 8192 : 20480;  // what updates make, with a trailer
      EXPECT_EQ(slots, wanted) << w;
      EXPECT_EQ(versions, w == 2 ? std::set<int>({2}) : std::set<int>()) << w;
    }
  }
}

TEST(BlockTableTest, ALoneWorkerKeepsItsSums) {
  const Plan plan = MakeTestPlan(Shape("1x2 dp"));
  int sums = 0;
  RZ_ASSIGN(const std::vector<OwnBlock> blocks, BlockTable(plan, WorkerId(0), {}));
  for (const OwnBlock& own : blocks) {
    EXPECT_EQ(own.access, Access::kPrivate) << ToString(own.block);
    sums += own.block.kind == BlockKind::kSum ? 1 : 0;
  }
  EXPECT_EQ(sums, 2);
}

// Each worker's right neighbour; owners send worker 0 and their first readers copies, worker N-1 sends
// owners sums.
TEST(PayloadPairsTest, AreFewerThanAll) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    const Plan plan = MakeTestPlan({.workers = 8, .stages = 8, .rule = rule});
    RZ_ASSIGN(const auto pairs, PayloadPairs(plan));
    EXPECT_EQ(pairs.size(), 20u);
    std::map<WorkerId, int> ends;
    for (const auto& [from, to] : pairs) ++ends[from], ++ends[to];
    for (const auto& [worker, count] : ends) EXPECT_LE(count, 8) << worker.value;
  }
}

}  // namespace
}  // namespace ringzero
