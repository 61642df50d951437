// Links: the same whether a program is appended whole or part by part, as the engine
// does.
#include "sharding/program/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

std::vector<LinkedOp> Link(const Plan& plan, const Program& program) {
  const auto linked = Linker(plan, program.worker).Append(program.ops);
  EXPECT_TRUE(linked.ok()) << linked.status();
  return linked.ok() ? *linked : std::vector<LinkedOp>();
}

TEST(LinkTest, AppendingByPartsLinksTheSame) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    for (const Program& program : ProgramsOf(plan)) {
      const std::vector<LinkedOp> whole = Link(plan, program);
      Linker linker(plan, program.worker);
      size_t at = 0;
      RZ_ASSIGN(auto writer, ProgramWriter::Create(plan, program.worker, Iteration(0)));
      while (writer->part().has_value()) {
        const auto linked = linker.Append(writer->Next());
        ASSERT_TRUE(linked.ok()) << Describe(shape) << ": " << linked.status();
        for (const LinkedOp& op : *linked) {
          ASSERT_LT(at, whole.size());
          const LinkedOp& same = whole[at++];
          EXPECT_EQ(op.op, same.op);
          EXPECT_EQ(op.after, same.after) << Describe(shape) << " " << ToString(op.op);
          EXPECT_EQ(op.behind, same.behind);
          ASSERT_EQ(op.reads.size(), same.reads.size());
          for (size_t r = 0; r < op.reads.size(); ++r) {
            EXPECT_EQ(op.reads[r].block, same.reads[r].block);
          }
        }
      }
      EXPECT_EQ(at, whole.size());
    }
  }
}

TEST(LinkTest, OrdersOnlyWhatMustBe) {
  const Plan plan = MakeTestPlan({.workers = 2, .stages = 3, .rule = Rule::kCdpV1, .pending = 1});
  const std::vector<LinkedOp> linked = Link(plan, ProgramsOf(plan)[1]);
  int64_t last_compute = -1;
  for (size_t i = 0; i < linked.size(); ++i) {
    const LinkedOp& op = linked[i];
    EXPECT_TRUE(op.after.empty() || op.after.back() < static_cast<int64_t>(i));
    if (op.op.kind == OpKind::kReceive) {
      const MemoryBlock& slot = op.op.uses[0].block;
      for (const int64_t before : op.after) {
        const Uses& uses = linked[static_cast<size_t>(before)].op.uses;
        EXPECT_TRUE(std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
          return use.block == slot;
        })) << ToString(op.op);
      }
    }
    if (!IsCompute(op.op.kind)) continue;
    const bool follows = std::count(op.after.begin(), op.after.end(), last_compute) == 1;
    EXPECT_EQ(follows, last_compute >= 0) << ToString(op.op);
    last_compute = static_cast<int64_t>(i);
  }
}

// Whether `op` may stand between a complete sum and the update with it.
bool IsPartOfUpdate(const Op& op, StageId stage) {
  const bool message = op.channel == Channel::kNorms || op.channel == Channel::kFinished;
  const bool own = op.kind == OpKind::kSquares || op.kind == OpKind::kKeep ||
                   op.kind == OpKind::kFetch || op.kind == OpKind::kLoad;
  return op.stage == stage && (own || (op.kind == OpKind::kSend && message));
}

// The memory of a sum is named again later in the lap: the list must not use it after that.
TEST(ProgramTest, AnUpdateIsListedRightBehindItsSum) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    if (plan.takes_sums()) continue;  // the sum is taken into memory of its own
    for (const Program& program : ProgramsOf(plan)) {
      for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& update = program.ops[i];
        if (update.kind != OpKind::kUpdate) continue;
        size_t sum = i - 1;
        while (sum > 0 && IsPartOfUpdate(program.ops[sum], update.stage)) --sum;
        EXPECT_TRUE(program.ops[sum].kind == OpKind::kAdd ||
                    program.ops[sum].channel == Channel::kRetire ||
                    program.ops[sum].channel == Channel::kFinished)
            << Describe(shape) << ", worker " << program.worker.value << ": "
            << ToString(program.ops[sum]) << " before " << ToString(update);
        EXPECT_EQ(program.ops[sum].stage, update.stage) << Describe(shape);
      }
    }
  }
}

// In pieces an update begins when its fetch has begun, a store when its update has begun, and a
// fetch when the one before it has begun. Otherwise each waits until the one before it is done.
TEST(LinkTest, StatesThatStreamMoveInPieces) {
  const Plan plan = MakeTestPlan(Shape("1x3 cdp_v1 iterations=3 streams"));
  const Program program = ProgramsOf(plan)[0];
  for (const bool in_pieces : {false, true}) {
    Linker linker(plan, WorkerId(0), in_pieces);
    RZ_ASSIGN(const std::vector<LinkedOp> linked, linker.Append(program.ops));
    int64_t last = kNoOp, fetch = kNoOp;
    int moves = 0;
    for (size_t i = 0; i < linked.size(); ++i) {
      const LinkedOp& op = linked[i];
      const auto staged = std::ranges::find(op.op.uses, Role::kStaged, &Use::role);
      if (staged == op.op.uses.end()) continue;
      const bool fetches = op.op.kind == OpKind::kFetch;
      EXPECT_EQ(op.behind, !in_pieces ? kNoOp : fetches ? fetch : last) << ToString(op.op);
      EXPECT_EQ(std::ranges::count(op.after, last), !in_pieces && last != kNoOp);
      last = static_cast<int64_t>(i);
      if (fetches) fetch = last;
      ++moves;
    }
    EXPECT_EQ(moves, 3 * 2 * 3) << "in 3 iterations 2 stages, a Fetch, an Update and a Store each";
  }
}

TEST(LinkTest, MoreThanPendingGradientsMakeTheNextBackwardWait) {
  for (const int pending : {1, 2, 3}) {
    const Plan plan =
        MakeTestPlan({.workers = 2, .stages = 4, .rule = Rule::kDp, .pending = pending});
    const std::vector<LinkedOp> linked = Link(plan, ProgramsOf(plan)[1]);
    std::vector<int64_t> adds;
    for (size_t i = 0; i < linked.size(); ++i) {
      const LinkedOp& op = linked[i];
      if (op.op.kind == OpKind::kAdd) adds.push_back(static_cast<int64_t>(i));
      if (op.op.kind != OpKind::kBackward) continue;
      // All adds but the last `pending` are done; each was waited for when it fell behind.
      const size_t behind = adds.size() > static_cast<size_t>(pending) ? adds.size() - pending : 0;
      const bool waits =
          behind > 0 && std::count(op.after.begin(), op.after.end(), adds[behind - 1]);
      EXPECT_EQ(waits, behind > 0) << ToString(op.op) << " pending " << pending;
    }
    EXPECT_EQ(adds.size(), 4u * plan.iterations);
  }
}

TEST(LinkTest, ErrorsNameLineAndOperation) {
  const Plan plan = MakeTestPlan({.workers = 2, .stages = 2});
  Program program = ProgramsOf(plan)[1];
  const auto receive = std::find_if(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return op.kind == OpKind::kReceive && CarriesParameters(op.channel);
  });
  program.ops.erase(receive);
  const auto linked = Linker(plan, WorkerId(1)).Append(program.ops);
  EXPECT_THAT(linked, Fails(absl::StatusCode::kFailedPrecondition, "line "));
  EXPECT_THAT(linked, Says("does not come before it"));
}

}  // namespace
}  // namespace ringzero
