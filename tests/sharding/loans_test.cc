// What workers of one host lend each other, and the words that bring it back.
#include "sharding/program/loans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/check/verify.h"
#include "sharding/check/wait_graph.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/operands.h"
#include "sharding/study/cost_profile.h"
#include "sharding/study/simulate.h"
#include "tests/sharding/given_programs.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// Of all workers.
std::vector<Instruction> OpsOf(const Plan& plan) {
  std::vector<Instruction> all;
  for (const Program& program : ProgramsOf(plan)) {
    all.insert(all.end(), program.ops.begin(), program.ops.end());
  }
  return all;
}

int CountReturns(const Plan& plan) {
  const std::vector<Instruction> ops = OpsOf(plan);
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [](const Instruction& op) {
    return op.kind == OpKind::kSend && op.channel == Channel::kReturn;
  }));
}

TEST(LoansTest, CopiesAndSumsTakeNoSlots) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    const Loans loans(plan);
    for (const Program& program : ProgramsOf(plan)) {
      for (const Instruction& op : program.ops) {
        EXPECT_EQ(op.loan, loans.IsLent(program.worker, op)) << WithOperands(op);
        if (!op.loan || op.kind != OpKind::kReceive) continue;
        const BlockKind target = op.uses[0].block.kind;
        EXPECT_NE(target, BlockKind::kSlot) << WithOperands(op);
        EXPECT_NE(target, BlockKind::kBegun) << WithOperands(op);
      }
    }
    const std::vector<Instruction> ops = OpsOf(plan);
    const bool lends =
        std::any_of(ops.begin(), ops.end(), [](const Instruction& op) { return op.loan; });
    const bool shares = shape.hosts > 0 && shape.hosts < plan.workers;
    EXPECT_EQ(lends, shares && plan.zero_stage > 0);
  }
}

// A borrower finds what is lent by the table of its home.
TEST(LoansTest, WhatIsLentIsInItsHomesTable) {
  for (PlanShape shape : PairwiseShapes()) {
    shape.hosts = std::max(shape.hosts, 1);
    const Plan plan = MakeTestPlan(shape);
    const Loans loans(plan);
    for (const Program& program : ProgramsOf(plan)) {
      for (const Instruction& op : program.ops) {
        if (!op.loan || op.kind != OpKind::kReceive) continue;
        const LentBlock lent = loans.HomeOf(program.worker, op);
        RZ_ASSIGN(const std::vector<OwnBlock> table, BlockTable(plan, lent.home, {}));
        const auto own = std::find_if(table.begin(), table.end(), [&](const OwnBlock& each) {
          return each.block == lent.block;
        });
        if (LiesInFile(plan, lent.block)) {
          EXPECT_EQ(own, table.end()) << WithOperands(op);
          continue;
        }
        ASSERT_NE(own, table.end()) << WithOperands(op);
        const bool written = op.channel == Channel::kSum || op.channel == Channel::kRetire;
        EXPECT_EQ(own->access, written ? Access::kLentToWrite : Access::kLentToRead);
      }
    }
  }
}

// Worker 0 begins the next sum with a gradient of the version that the last one made.
TEST(LoansTest, InDpNoSumIsGivenBackByAWord) {
  EXPECT_EQ(CountReturns(MakeTestPlan(Shape("3x6 dp iterations=4 one_host"))), 0);
}

// Once for each iteration but the last, and for each stage of another owner.
TEST(LoansTest, WhereThatVersionIsNotReadInTimeAWordGoesBack) {
  const Plan plan = MakeTestPlan(Shape("3x6 cdp_v1 iterations=4 one_host"));
  const auto others = std::count_if(plan.stages.begin(), plan.stages.end(),
                                    [](const StagePlan& stage) { return stage.owner.value != 0; });
  EXPECT_EQ(CountReturns(plan), 3 * others);
}

// The word is needed: without it programs are refused.
TEST(LoansTest, WithoutItsWordASumMayBeOverwritten) {
  for (const char* shape :
       {"2x2 cdp_v1 iterations=3 one_host", "3x4 cdp_v2 iterations=3 one_host",
        "2x3 cdp_v1 iterations=3 clip_exact one_host", "4x4 cdp_v1 iterations=3 hosts=2"}) {
    const Plan plan = MakeTestPlan(Shape(shape));
    std::vector<Program> programs = ProgramsOf(plan);
    EXPECT_EQ(CheckMeaning(plan, programs), absl::OkStatus());
    for (Program& program : programs) {
      std::erase_if(program.ops,
                    [](const Instruction& op) { return op.channel == Channel::kReturn; });
    }
    for (uint64_t order = 0; order <= 3; ++order) {
      EXPECT_FALSE(CheckMeaning(plan, programs, order).ok()) << shape;
    }
  }
}

TEST(LentUsesTest, AWriteIsBehindAllUsesSince) {
  const BlockPlace block{.home = 0, .block = 2};
  LentUses uses;
  uses.Note(block, {.op = 0, .worker = 0, .writes = true});
  uses.Note(block, {.op = 1, .worker = 1});
  uses.Note(block, {.op = 2, .worker = 0, .writes = true});
  const auto name = [](int op) { return absl::StrCat("op ", op); };
  EXPECT_EQ(uses.Check({0, 1, 2}, {{}, {0}, {1}}, name), absl::OkStatus());
  EXPECT_THAT(uses.Check({0, 1, 2}, {{}, {0}, {0}}, name),
              Says("op 2 may come before op 1, which uses the same lent block"));
  EXPECT_THAT(uses.Check({0, 1, 2}, {{}, {}, {1}}, name), Says("op 1 may come before op 0"));
  // Farther away than a message.
  EXPECT_EQ(
      uses.Check({0, 3, 4, 5, 6, 7, 8, 1, 2}, {{}, {8}, {1}, {0}, {3}, {4}, {5}, {6}, {7}}, name),
      absl::OkStatus());
}

// A step is as short as with slots of which there are always enough.
TEST(LoansTest, NoMessageWaitsForASlot) {
  for (const char* shape : {"8x8 dp laps=2 iterations=6", "4x8 dp laps=3 iterations=6",
                            "4x8 cdp_v2 laps=2 iterations=6", "4x16 cdp_v1 iterations=6"}) {
    Plan slots = MakeTestPlan(Shape(shape));
    Plan lent = slots;
    lent.hosts = {lent.workers};
    RZ_ASSIGN(slots.window, ChooseFreeWindow(slots));
    RZ_ASSIGN(lent.window, ChooseWindow(lent));
    RZ_ASSIGN(const StepForecast with_slots, ForecastStep(slots, {}));
    RZ_ASSIGN(const StepForecast with_loans, ForecastStep(lent, {}));
    EXPECT_GE(with_loans.computing, 0.99 * with_slots.computing) << shape;
  }
}

}  // namespace
}  // namespace ringzero
