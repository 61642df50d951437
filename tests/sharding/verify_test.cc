// Verify accepts every plan that the scheduler makes, and says what is wrong with every other
// program.
#include "sharding/check/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/check/definitions.h"
#include "sharding/check/wait_graph.h"
#include "sharding/rules/schedule.h"
#include "tests/sharding/given_programs.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const Plan& plan, const std::vector<Program>& programs) {
  const absl::Status status = Verify(plan, programs);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

// The line of `text` in a worker's program, as the errors count.
int LineOf(const Program& program, const std::string& text) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (ToString(program.ops[i]) == text) return static_cast<int>(i) + 2;
  }
  ADD_FAILURE() << "no \"" << text << "\" in\n" << ToString(program);
  return 0;
}

TEST(VerifyTest, AcceptsEdgeCases) {
  const std::vector<PlanShape> shapes = {
      {.workers = 1, .stages = 1, .rule = Rule::kDp},
      {.workers = 1, .stages = 5, .laps = 3, .rule = Rule::kCdpV1, .evaluate_every = 1},
      {.workers = 2, .stages = 2},
      {.workers = 5, .stages = 3, .rule = Rule::kCdpV2, .slack = 0},
      {.workers = 1, .stages = 3, .rule = Rule::kCdpV1, .predict = true, .evaluate_every = 1},
      {.workers = 4, .stages = 7, .laps = 3, .predict = true},
      {.workers = 3, .stages = 6, .predict = true, .frozen = Frozen::kMiddle},
      {.workers = 3, .stages = 3, .stagger = true, .predict = true, .evaluate_every = 1},
      {.workers = 3, .stages = 3, .predict = true, .iterations = 1, .statistics = true},
      {.workers = 4, .stages = 7, .laps = 3},
      {.workers = 3, .stages = 6, .frozen = Frozen::kPrefix},
      {.workers = 3, .stages = 6, .frozen = Frozen::kMiddle},
      {.workers = 3, .stages = 6, .tied = true},
      {.workers = 3, .stages = 6, .tied = true, .frozen = Frozen::kPrefix},
      {.workers = 3, .stages = 6, .retain = 2},
      {.workers = 3, .stages = 6, .tied = true, .retain = 6},
      {.workers = 4, .stages = 8, .rule = Rule::kCdpV1, .stagger = true},
      {.workers = 3, .stages = 3, .evaluate_every = 1, .evaluation_laps = 3, .statistics = true},
      {.workers = 3, .stages = 3, .iterations = 0, .evaluate_every = 1, .statistics = true},
      {.workers = 3, .stages = 3, .iterations = 0, .statistics = true},
      {.workers = 3, .stages = 3, .iterations = 1, .statistics = true},
      {.workers = 4, .stages = 8, .pending = 5, .costs = Costs::kRandom},
      {.workers = 1, .stages = 3, .evaluate_every = 2, .collect_every = 1, .statistics = true},
      {.workers = 4, .stages = 8, .collect_every = 1, .collector = 2, .statistics = true},
      {.workers = 4, .stages = 7, .laps = 2, .collect_versions = {4}, .collector = 3},
      Shape("3x6 evaluate=1 versions=1,2 collector=2 statistics frozen_middle")};
  for (const PlanShape& shape : shapes) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      PlanShape variant = shape;
      variant.rule = rule;
      if (rule == Rule::kDp) variant.stagger = variant.predict = false;
      for (variant.zero_stage = 0; variant.zero_stage <= 3; ++variant.zero_stage) {
        const Plan plan = MakeResolvedPlan(variant);
        EXPECT_EQ(VerifyPlan(plan), absl::OkStatus()) << Describe(variant);
        EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus()) << Describe(variant);
      }
    }
  }
}

TEST(VerifyTest, AcceptsPlansWithoutExchange) {
  Plan plan = MakeTestPlan({.workers = 3, .stages = 4, .laps = 2, .evaluate_every = 1});
  plan.exchange = false;
  plan.window = 1;
  EXPECT_EQ(VerifyPlan(plan), absl::OkStatus());
}

TEST(VerifyTest, WantsAResolvedWindow) {
  const Plan plan = MakeResolvedPlan({.workers = 3, .stages = 3});
  Plan unresolved = plan;
  unresolved.window = 0;
  EXPECT_EQ(VerifyPlan(unresolved).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanProofTest, IsOfAPlanWithItsWindowAndOfNoOther) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    SCOPED_TRACE(PlanToString(plan));
    RZ_ASSIGN(const PlanProof proof, ProvePlan(plan));
    Plan resolved = plan;
    RZ_ASSIGN(resolved.window, ChooseWindow(plan));
    EXPECT_EQ(proof.window(), resolved.window);
    EXPECT_TRUE(proof.Covers(resolved));
    RZ_ASSIGN(const PlanProof sent, PlanProof::Parse(proof.Write()));
    EXPECT_EQ(sent.window(), resolved.window);
    EXPECT_TRUE(sent.Covers(resolved));
    EXPECT_FALSE(PlanProof::Parse("4 none").ok());
    resolved.iterations += 1;
    EXPECT_FALSE(proof.Covers(resolved));
    EXPECT_FALSE(PlanProof().Covers(resolved));
  }
}

TEST(PlanProofTest, ThereIsNoneOfAPlanThatCannotRun) {
  Plan plan = MakeTestPlan({.workers = 4, .stages = 8, .laps = 2});
  RZ_ASSIGN(const int smallest, SmallestWindow(plan));
  plan.window = smallest;
  EXPECT_EQ(ProvePlan(plan).status(), absl::OkStatus());
  plan.window = smallest - 1;
  ASSERT_GT(plan.window, 0);
  EXPECT_THAT(ProvePlan(plan).status(),
              Fails(absl::StatusCode::kFailedPrecondition, "these wait for each other"));
  plan.laps = 0;
  EXPECT_EQ(ProvePlan(plan).status().code(), absl::StatusCode::kInvalidArgument);
}

// One is written from the definitions, the other from the schedule.
TEST(DefinitionsTest, AreWhatProgramsCompute) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    const RequiredLabels labels(plan);
    for (const Program& program : ProgramsOf(plan)) {
      std::vector<Op> computing;
      for (const Op& op : program.ops) {
        if (IsCompute(op.kind)) computing.push_back(op);
      }
      EXPECT_EQ(computing, RequiredComputing(plan, labels, program.worker.value))
          << Describe(shape);
    }
  }
}

TEST(VerifyTest, NamesWorkerLineAndOperation) {
  const Plan plan = MakeResolvedPlan({.workers = 3, .stages = 3, .rule = Rule::kDp});
  const std::vector<Program> programs = ProgramsOf(plan);
  const int line = LineOf(programs[1], "F1 t2 l0 v2");

  std::vector<Program> bad = programs;
  bad[1].ops[line - 2].version = Version(1);
  EXPECT_THAT(Refusal(plan, bad),
              AllOf(HasSubstr(absl::StrCat("worker 1, line ", line)), HasSubstr("\"F1 t2 l0 v1\""),
                    HasSubstr("\"F1 t2 l0 v2\"")));

  bad = programs;
  bad[1].ops.erase(bad[1].ops.begin() + (line - 2));
  EXPECT_THAT(Refusal(plan, bad), HasSubstr("\"F1 t2 l0 v2\" has to come here"));

  bad = programs;
  const int add = LineOf(programs[2], "Add s1 t1 l0");
  bad[2].ops[add - 2].stage = StageId(2);
  EXPECT_THAT(Refusal(plan, bad), HasSubstr("worker 2: \"Add s2 t1 l0\" is there twice"));

  bad = programs;
  bad[2].ops.erase(bad[2].ops.begin() + (add - 2));
  EXPECT_THAT(Refusal(plan, bad), HasSubstr("finds the sum of micro-batches 3 to 4 of stage 1, "
                                            "not the sum of micro-batches 3 to 5 of stage 1"));
}

// Moves `text` to just before (or after) `other` in a worker's program.
enum class Where { kBefore, kAfter };
std::vector<Program> Moved(std::vector<Program> programs, int worker, const std::string& text,
                           Where where, const std::string& other) {
  std::vector<Instruction>& ops = programs[worker].ops;
  const int from = LineOf(programs[worker], text) - 2;
  const Instruction op = ops[from];
  ops.erase(ops.begin() + from);
  const int to = LineOf(programs[worker], other) - 2 + (where == Where::kAfter ? 1 : 0);
  ops.insert(ops.begin() + to, op);
  return programs;
}

// The same operations in another order are another program: what they take and read changes.
TEST(VerifyTest, RefusesWrongOrders) {
  const Plan plan = MakeResolvedPlan(Shape("2x2 dp laps=2 evaluate=2 statistics owners_first"));
  const std::vector<Program> programs = ProgramsOf(plan);
  ASSERT_EQ(Verify(plan, programs), absl::OkStatus());
  const auto refusal = [&](int worker, const std::string& text, Where where,
                           const std::string& other) {
    return Refusal(plan, Moved(programs, worker, text, where, other));
  };
  // Lap 1 would go on with its own lap 0, past the other worker.
  EXPECT_THAT(refusal(0, "Recv sum s0 t0 l1 w1", Where::kAfter, "Add s0 t0 l1"),
              HasSubstr("\"Add s0 t0 l1\": finds nothing, not the sum of micro-batches 0 to 1"));
  EXPECT_THAT(refusal(0, "Add s1 t0 l0", Where::kBefore, "B1 t0 l0 v0"),
              HasSubstr("\"Add s1 t0 l0\": finds nothing, not the gradient of micro-batch 0"));
  EXPECT_THAT(refusal(0, "Update s0 t0 v1", Where::kAfter, "F0 t1 l0 v1"),
              HasSubstr("\"F0 t1 l0 v1\": finds version 0 of stage 0, not version 1"));
  EXPECT_THAT(refusal(1, "Recv forward fwd s0 t0 l1 v0 w0", Where::kBefore, "F0 t0 l0 v0"),
              HasSubstr("not the same message"));
  EXPECT_THAT(refusal(0, "Fold t0 l0", Where::kBefore, "End t0 l0"),
              HasSubstr("finds nothing, not the losses of micro-batch 0 of iteration 0"));
  EXPECT_THAT(refusal(1, "Snap s1 t2", Where::kAfter, "Apply s1 t2 l0"),
              HasSubstr("\"Send snapshots s1 t2 w0\": there is nothing yet to send"));
  EXPECT_THAT(refusal(1, "Snap s1 t2", Where::kBefore, "Apply s1 t1 l1"), HasSubstr("statistics"));
  EXPECT_THAT(refusal(0, "F0 t0 l0 v0", Where::kAfter, "F1 t0 l0 v0"),
              HasSubstr("has to come here"));
  EXPECT_THAT(refusal(1, "Recv sum s1 t0 l0 w0", Where::kAfter, "Recv sum s0 t0 l0 w0"),
              HasSubstr("not the same message"));
}

TEST(VerifyTest, MessagesMustMeetTheirReceivesInOrder) {
  const Plan plan = MakeResolvedPlan({.workers = 2, .stages = 3, .rule = Rule::kCdpV1});
  const std::vector<Program> programs = ProgramsOf(plan);
  // The sender's order of two messages of one channel alone; nothing within its program is wrong.
  const std::vector<Program> swapped =
      Moved(programs, 0, "Send sum s2 t0 l0 w1", Where::kAfter, "Send sum s1 t0 l0 w1");
  EXPECT_THAT(Refusal(plan, swapped), HasSubstr("not the same message"));
}

TEST(VerifyTest, TheTokenGoesOnWhereTheStaggerSaysAndIsWaitedFor) {
  const Plan plan =
      MakeResolvedPlan({.workers = 2, .stages = 4, .rule = Rule::kCdpV1, .stagger = true});
  const std::vector<Program> programs = ProgramsOf(plan);
  ASSERT_EQ(Verify(plan, programs), absl::OkStatus());
  const auto moved = [&](int worker, const char* token, Where where, const char* operation) {
    return Refusal(plan, Moved(programs, worker, token, where, operation));
  };
  EXPECT_THAT(moved(0, "Send token fwd s0 t0 l0 w1", Where::kBefore, "F1 t0 l0 v-1"),
              HasSubstr("there is nothing yet to send"));
  EXPECT_THAT(moved(1, "Recv token fwd s0 t0 l0 w0", Where::kAfter, "F0 t0 l0 v-1"),
              HasSubstr("finds nothing, not the token of F3 of micro-batch 0"));
  // A backward's, from the lap that follows.
  EXPECT_THAT(moved(0, "Send token bwd s2 t0 l0 w1", Where::kBefore, "F0 t1 l0 v0"),
              HasSubstr("there is nothing yet to send"));
  EXPECT_THAT(moved(1, "Recv token bwd s2 t0 l0 w0", Where::kAfter, "B2 t0 l0 v-1"),
              HasSubstr("finds nothing, not the token of F0 of micro-batch 2"));
}

// A window that deadlocks is refused with the circle of waits.
TEST(VerifyTest, SpellsOutACircle) {
  Plan plan = MakeTestPlan({.workers = 3, .stages = 3, .laps = 2, .rule = Rule::kCdpV1});
  plan.window = 1;
  const std::string message = Refusal(plan, ProgramsOf(plan));
  EXPECT_THAT(message, HasSubstr("with a window of 1 these wait for each other: worker"));
  EXPECT_THAT(message, HasSubstr("waits for a slot until worker 1, line"));
}

template <typename Keep>
void KeepAfter(RingOp& op, Keep keep) {
  op.after.erase(std::partition(op.after.begin(), op.after.end(), keep), op.after.end());
}

// An update that did not care who reads must be noticed. (Under cdp_v2 an update that overwrites
// what only the iteration before has read is kept apart by the update before it.)
TEST(WaitGraphTest, NoticesAnUpdateThatWaitsForNoReader) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1}) {
    const Plan plan = MakeResolvedPlan({.workers = 1, .stages = 3, .rule = rule});
    const LinkedRing ring = RingOf(plan);
    ASSERT_EQ(WaitGraph(ring).CheckOverwrites(plan), absl::OkStatus());
    int checked = 0;
    for (int i = 0; i < ring.count(); ++i) {
      if (ring.op(i).kind != OpKind::kUpdate) continue;
      LinkedRing without = ring;
      KeepAfter(without.ops[i], [&](int a) { return ring.op(a).kind == OpKind::kUpdate; });
      EXPECT_THAT(WaitGraph(without).CheckOverwrites(plan), Says("may still be reading"))
          << ring.Describe(i);
      ++checked;
    }
    EXPECT_EQ(checked, 3 * plan.iterations);
  }
}

// Over several workers: an update that does not wait for its sum may overtake readers elsewhere.
TEST(WaitGraphTest, NoticesReadersOnOtherWorkers) {
  const Plan plan = MakeResolvedPlan({.workers = 3, .stages = 3, .rule = Rule::kCdpV1});
  const LinkedRing ring = RingOf(plan);
  for (int i = 0; i < ring.count(); ++i) {
    const Op& op = ring.op(i);
    if (op.kind != OpKind::kUpdate || op.iteration.value != 2) continue;
    LinkedRing without = ring;
    const auto brings_the_sum = [&](int a) {
      return ring.op(a).kind == OpKind::kAdd || ring.op(a).channel == Channel::kRetire;
    };
    KeepAfter(without.ops[i], [&](int a) { return !brings_the_sum(a); });
    const absl::Status status = WaitGraph(without).CheckOverwrites(plan);
    EXPECT_THAT(status, Says("may still be reading")) << ring.Describe(i);
  }
}

// In a large ring the graph is asked of a read alone that comes behind its worker's last gradient.
TEST(WaitGraphTest, NoticesAReadBehindTheLastGradientInALargeRing) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    const Plan plan = MakeResolvedPlan({.workers = 3, .stages = 3, .rule = rule});
    const LinkedRing ring = RingOf(plan);
    constexpr int kAllAreLarge = 0;
    ASSERT_EQ(WaitGraph(ring).CheckOverwrites(plan, kAllAreLarge), absl::OkStatus());
    int checked = 0;
    for (int i = 0; i < ring.count(); ++i) {
      if (ring.op(i).kind != OpKind::kEnd || ring.op(i).iteration.value != 2) continue;
      LinkedRing late = ring;
      for (const Version v : OverwrittenVersions(plan, ring.op(i).iteration)) {
        late.ops[i].reads.push_back({.stage = StageId(1), .version = v});
      }
      EXPECT_THAT(WaitGraph(late).CheckOverwrites(plan, kAllAreLarge), Says("may still be reading"))
          << ring.Describe(i);
      ++checked;
    }
    EXPECT_EQ(checked, plan.workers);
  }
}

TEST(WindowTest, IsTwoMessagesPerOwnStage) {
  for (int n = 1; n <= 5; ++n) {
    for (int s = 1; s <= 2 * n + 1; ++s) {
      for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
        const Plan plan = MakeTestPlan({.workers = n, .stages = s, .laps = 2, .rule = rule});
        const int k = (s + n - 1) / n;
        EXPECT_EQ(*ChooseWindow(plan), 2 * k) << "N " << n << " S " << s;
        EXPECT_LE(*SmallestWindow(plan), 2 * k);
      }
    }
  }
}

TEST(WindowTest, StaggerNeedsTheTokensDistance) {
  for (int n = 2; n <= 5; ++n) {
    const Plan plan = MakeTestPlan({.workers = n,
                                    .stages = 2 * n,
                                    .rule = Rule::kCdpV1,
                                    .stagger = true,
                                    .costs = Costs::kRandom,
                                    .seed = static_cast<uint64_t>(n)});
    EXPECT_GE(*ChooseWindow(plan), std::max(4, StaggerTokens(plan)[0].after + 1));
  }
}

TEST(WindowTest, GivenByHandItIsTakenIffItPasses) {
  Plan plan = MakeTestPlan({.workers = 4, .stages = 8, .laps = 2});
  const int smallest = *SmallestWindow(plan);
  ASSERT_GT(smallest, 1);
  plan.window = smallest;
  EXPECT_EQ(*ChooseWindow(plan), smallest);
  plan.window = smallest - 1;
  EXPECT_EQ(ChooseWindow(plan).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(VerifyPlan(plan).ok());
  plan.window = 100;
  EXPECT_EQ(*ChooseWindow(plan), 100);
}

TEST(ShortenedPlanTest, CollectionsInLongRunsNeedNoMore) {
  const std::vector<std::pair<int, std::vector<int>>> when = {
      {1, {}}, {2, {}}, {3, {}}, {0, {9}}, {0, {1, 2, 5, 8}}, {4, {3, 9}}};
  for (const auto& [every, versions] : when) {
    for (int collector = 0; collector < 3; ++collector) {
      for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
        PlanShape shape = Shape("3x6 iterations=9 statistics random_owners random_costs");
        shape.rule = rule;
        shape.evaluate_every = shape.collector = collector;
        shape.collect_every = every;
        shape.collect_versions = versions;
        Plan plan = MakeTestPlan(shape);
        EXPECT_LE(ShortenedPlan(plan).iterations, 5);
        plan.window = *SmallestWindow(plan);
        EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus())
            << "every " << every << " worker " << collector << " " << ToString(rule);
      }
    }
  }
}

// Sums are kept outside of their slots.
TEST(ShortenedPlanTest, CollectionsWantNoLargerWindow) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (int n = 2; n <= 6; ++n) {
      for (int k = 1; k <= 3; ++k) {
        for (int collector = 0; collector < n; ++collector) {
          const Plan plan = MakeTestPlan(Shape(absl::StrCat(n, "x", n * k, " ", ToString(rule),
                                                            " collect=1 collector=", collector)));
          EXPECT_EQ(*ChooseWindow(plan), 2 * k) << n << " " << k << " " << collector;
        }
      }
    }
  }
}

// What VerifyPlan leaves out by running a shorter plan changes nothing.
TEST(ShortenedPlanTest, LongRunsNeedTheSameWindow) {
  for (const int every : {0, 1, 2, 3, 4}) {
    for (const int iterations : {6, 9}) {
      for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
        Plan plan = MakeTestPlan(Shape(absl::StrCat(
            "3x6 ", ToString(rule), " laps=2 iterations=", iterations, " evaluate=", every,
            " evaluation_laps=2 statistics", " random_owners random_costs")));
        EXPECT_LE(ShortenedPlan(plan).iterations, 5);
        EXPECT_EQ(IsEvaluated(ShortenedPlan(plan), Version(2)), every > 0);
        plan.window = *SmallestWindow(plan);
        EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus())
            << "every " << every << " T " << iterations << " " << ToString(rule);
      }
    }
  }
}

// Nor does a shorter warm-up. Whether θ_W is evaluated is kept.
TEST(ShortenedPlanTest, LongWarmupsNeedTheSameWindow) {
  for (const std::string rule : {"cdp_v1", "cdp_v2", "cdp_v2 stagger", "cdp_v1 predict"}) {
    for (const int every : {0, 1, 2, 3}) {
      for (int warmup = 1; warmup <= 12; ++warmup) {
        Plan plan = MakeTestPlan(
            Shape(absl::StrCat("3x6 laps=2 statistics random_owners random_costs iterations=12 ",
                               rule, " evaluate=", every, " warmup_updates=", warmup)));
        const Plan few = ShortenedPlan(plan);
        EXPECT_LE(few.iterations, 9);
        const auto evaluated = [](const Plan& of) {
          return IsEvaluated(of, Version(of.warmup_updates));
        };
        EXPECT_EQ(evaluated(few), evaluated(plan)) << PlanToString(plan);
        EXPECT_EQ(few.warmup_updates == few.iterations, warmup == 12);
        plan.window = *SmallestWindow(plan);
        EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus()) << PlanToString(plan);
      }
    }
  }
}

// Nor does it to have fewer laps.
TEST(ShortenedPlanTest, ManyLapsNeedTheSameWindow) {
  for (int variant = 0; variant < 24; ++variant) {
    Plan plan = MakeTestPlan({.workers = 2 + variant % 3,
                              .stages = 1 + variant % 7,
                              .zero_stage = 3 - variant / 6,
                              .laps = 6 + 5 * (variant % 2),
                              .rule = static_cast<Rule>(variant % 3),
                              .stagger = variant % 4 == 1 && variant % 3 != 0,
                              .evaluate_every = 2 * (variant % 2),
                              .statistics = variant % 5 == 0,
                              .pending = 1 + variant % 3,
                              .owners = variant % 2 == 0 ? Owners::kRandom : Owners::kAssigned,
                              .costs = Costs::kRandom,
                              .seed = 1 + static_cast<uint64_t>(variant)});
    EXPECT_EQ(ShortenedPlan(plan).laps, 5);
    plan.window = *SmallestWindow(plan);
    EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus()) << variant;
    if (plan.window == 1) continue;
    --plan.window;
    EXPECT_FALSE(Verify(plan, ProgramsOf(plan)).ok()) << variant;
  }
}

// Nor to evaluate in fewer laps, whatever the slots' numbers are behind them.
TEST(ShortenedPlanTest, ManyEvaluationLapsNeedTheSameWindow) {
  for (int variant = 0; variant < 24; ++variant) {
    Plan plan = MakeTestPlan({.workers = 2 + variant % 3,
                              .stages = 1 + variant % 5,
                              .zero_stage = 3 - variant / 6,
                              .laps = 1 + variant % 2,
                              .rule = static_cast<Rule>(variant % 3),
                              .evaluate_every = 1 + variant % 2,
                              .evaluation_laps = 6 + variant % 7,
                              .statistics = variant % 4 == 0,
                              .owners = variant % 2 == 0 ? Owners::kRandom : Owners::kAssigned,
                              .costs = Costs::kRandom,
                              .seed = 1 + static_cast<uint64_t>(variant)});
    EXPECT_EQ(ShortenedPlan(plan).evaluation.laps, 3);
    plan.window = *SmallestWindow(plan);
    EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus()) << variant;
    if (plan.window == 1) continue;
    --plan.window;
    EXPECT_FALSE(Verify(plan, ProgramsOf(plan)).ok()) << variant;
  }
}

TEST(VerifyTest, IsFastEnoughToRunAtEveryStart) {
  const Plan plan = MakeResolvedPlan({.workers = 16, .stages = 64, .evaluate_every = 1});
  EXPECT_EQ(VerifyPlan(plan), absl::OkStatus());  // ctest's limit would tell
}

}  // namespace
}  // namespace ringzero
