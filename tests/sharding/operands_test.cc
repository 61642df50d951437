// Operands: every operation has those of its kind, what is read was written, and the waits of Link
// are the hazards on blocks. Saves come in the order of updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sharding/program/kinds.h"
#include "sharding/program/link.h"
#include "sharding/rules/schedule.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// Calls `see(plan, program)` for the programs of all shapes, with and without more slots.
template <typename See>
void ForEachProgram(See see) {
  for (const PlanShape& shape : PairwiseShapes()) {
    Plan plan = MakeTestPlan(shape);
    for (const int window : {0, 1, 2 * plan.stage_count()}) {
      plan.window = window;
      for (const Program& program : ProgramsOf(plan)) see(plan, program);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(OperandsTest, AreThoseOfTheKind) {
  ForEachProgram([](const Plan& plan, const Program& program) {
    for (const Instruction& op : program.ops) {
      EXPECT_EQ(CheckInstruction(op), absl::OkStatus()) << WithOperands(op) << PlanToString(plan);
    }
  });
}

TEST(OperandsTest, WrongOnesAreRefused) {
  const Plan plan = MakeTestPlan({.workers = 2, .stages = 2, .statistics = true});
  int refused = 0;
  const std::vector<Program> programs = ProgramsOf(plan);
  for (const Instruction& op : programs[1].ops) {
    Instruction mutant = op;
    mutant.uses.push_back({Role::kSource, How::kWrite, {}});
    EXPECT_THAT(CheckInstruction(mutant), Says("that its kind does not have"));
    for (size_t i = 0; i < op.uses.size(); ++i) {
      mutant = op;
      mutant.uses[i].how = op.uses[i].how == How::kRead ? How::kReadWrite : How::kRead;
      refused += CheckInstruction(mutant).ok() ? 0 : 1;
    }
    mutant = op;
    mutant.iteration = kNoIteration;
    EXPECT_THAT(CheckInstruction(mutant), Says("lacks the field t"));
  }
  EXPECT_GT(refused, 0);
}

// What is in a block before the program begins: versions and states of owners, θ_0 and what was
// predicted, and the first running statistics.
bool IsThereAtTheStart(const Plan& plan, WorkerId worker, const MemoryBlock& block) {
  switch (block.kind) {
    case BlockKind::kVersion: return block.index == 0 && plan.has_masters(worker, block.stage);
    case BlockKind::kMasters:
      return block.stage != kNoStage && block.index == 0 && plan.has_masters(worker, block.stage);
    case BlockKind::kPrediction:
    case BlockKind::kState:
    case BlockKind::kTier: return plan.has_masters(worker, block.stage);
    case BlockKind::kStatistics: return worker.value == 0;
    default: return false;
  }
}

TEST(OperandsTest, WhatIsReadWasWritten) {
  ForEachProgram([](const Plan& plan, const Program& program) {
    std::set<MemoryBlock> written;
    for (const Instruction& op : program.ops) {
      for (const Use& use : op.uses) {
        EXPECT_TRUE(use.how == How::kWrite || written.count(use.block) > 0 ||
                    IsThereAtTheStart(plan, program.worker, use.block))
            << WithOperands(op) << "\n"
            << PlanToString(plan);
      }
      for (const Use& use : op.uses) {
        if (use.how != How::kRead) written.insert(use.block);
      }
    }
  });
}

// Hazards on blocks by their names.
class NamedHazards {
 public:
  Before Append(const Instruction& op) { return hazards_.Append(op, numbers_.Of(op.uses)); }
  int64_t WriterOf(const MemoryBlock& block) { return hazards_.WriterOf(numbers_.Of(block)); }

 private:
  BlockNumbers numbers_;
  Hazards hazards_;
};

// An operation that is in no order of its own.
Instruction Using(How how, const MemoryBlock& block) {
  return {{.kind = OpKind::kAdd}, {{Role::kSum, how, block}}};
}

TEST(HazardsTest, ReadersWaitForTheWriterAndWritersForAll) {
  const MemoryBlock block{.kind = BlockKind::kGradient}, other{.kind = BlockKind::kNorm};
  using After = std::vector<int64_t>;
  NamedHazards hazards;
  EXPECT_EQ(hazards.WriterOf(block), -1);
  EXPECT_EQ(hazards.Append(Using(How::kWrite, block)).after, After({}));
  EXPECT_EQ(hazards.Append(Using(How::kRead, block)).after, After({0}));
  EXPECT_EQ(hazards.Append(Using(How::kRead, block)).after, After({0}));
  EXPECT_EQ(hazards.Append(Using(How::kRead, other)).after, After({}));
  EXPECT_EQ(hazards.Append(Using(How::kReadWrite, block)).after, After({0, 1, 2}));
  EXPECT_EQ(hazards.WriterOf(block), 4);
  EXPECT_EQ(hazards.Append(Using(How::kRead, block)).after, After({4}));
  EXPECT_EQ(hazards.Append(Using(How::kWrite, other)).after, After({3}));
}

TEST(HazardsTest, ComputingIsInOrderAndMessagesOfOneChannelBeginInOrder) {
  const MemoryBlock block{.kind = BlockKind::kVersion};
  const auto forward = [&] {
    return Instruction({.kind = OpKind::kForward}, {Reading(Role::kParameters, block)});
  };
  const auto send = [&](int to) {
    return Instruction(
        {.kind = OpKind::kSend, .channel = Channel::kForwardCopy, .peer = WorkerId(to)},
        {Reading(Role::kSource, block)});
  };
  using After = std::vector<int64_t>;
  NamedHazards hazards;
  EXPECT_EQ(hazards.Append(forward()).after, After({}));
  EXPECT_EQ(hazards.Append(forward()).after, After({0}));
  for (const auto& [to, behind] : {std::pair(1, -1), std::pair(1, 2), std::pair(2, -1)}) {
    const Before before = hazards.Append(send(to));
    EXPECT_EQ(before.after, After({}));
    EXPECT_EQ(before.behind, behind);
  }
  // The last that computes stands for those before it. A message may end before an earlier one.
  EXPECT_EQ(hazards.Append(Using(How::kWrite, block)).after, After({1, 2, 3, 4}));
}

// So a stage's Save may take until the stage's next update, whatever else its owner saves.
TEST(SavesTest, ComeInTheOrderOfUpdates) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    const Plan plan =
        MakeTestPlan({.workers = 2, .stages = 6, .rule = rule, .iterations = 5, .save_every = 2});
    for (const Program& program : ProgramsOf(plan)) {
      std::map<int, std::vector<StageId>> updated, saved;  // by version
      for (const Instruction& op : program.ops) {
        if (op.kind == OpKind::kUpdate) updated[op.version.value].push_back(op.stage);
        if (op.kind == OpKind::kSave) saved[op.iteration.value].push_back(op.stage);
      }
      EXPECT_EQ(saved.size(), 2);
      for (const auto& [version, stages] : saved) EXPECT_EQ(stages, updated[version]);
    }
  }
}

TEST(OperandsTest, ReadLikeThis) {
  const Plan plan = MakeTestPlan({.workers = 2, .stages = 2, .rule = Rule::kCdpV1});
  const std::vector<Program> programs = ProgramsOf(plan);
  std::string text;
  for (const Instruction& op : programs[1].ops) {
    if (op.iteration.value == 1 &&
        (op.kind == OpKind::kBackward || op.kind == OpKind::kAdd || op.kind == OpKind::kUpdate)) {
      text += WithOperands(op) + "\n";
    }
  }
  EXPECT_EQ(text,
            "B1 t1 l0 v0 | parameters r C.backward.w0.1, gradient w G.0\n"
            "Add s1 t1 l0 | gradient r G.0, sum x C.sum.w0.0\n"
            "B0 t1 l0 v0 | parameters r V.s0.0, gradient w G.1\n"
            "Add s0 t1 l0 | gradient r G.1, sum x C.sum.w0.1\n"
            "Update s0 t1 v2 | sum x C.sum.w0.1, state x O.s0.0, before r V.s0.1, "
            "made w V.s0.0\n");
}

}  // namespace
}  // namespace ringzero
