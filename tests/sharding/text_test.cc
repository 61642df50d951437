// Operations and plans print and parse back to the same values, however odd they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/program.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

TEST(OpTextTest, PrintsShortly) {
  const Op forward{.kind = OpKind::kForward,
                   .stage = StageId(2),
                   .iteration = Iteration(5),
                   .lap = Lap(0),
                   .version = Version(4)};
  EXPECT_EQ(ToString(forward), "F2 t5 l0 v4");
  const Op inject{.kind = OpKind::kSend,
                  .channel = Channel::kInject,
                  .copy = Copy::kBackward,
                  .stage = StageId(1),
                  .iteration = Iteration(0),
                  .lap = Lap(0),
                  .version = Version(-1),
                  .peer = WorkerId(3)};
  EXPECT_EQ(ToString(inject), "Send inject bwd s1 t0 l0 v-1 w3");
  EXPECT_EQ(ToString(Op{}), "End");
  Op predicted = forward;
  predicted.version = Prediction(5);
  EXPECT_EQ(ToString(predicted), "F2 t5 l0 p5");
}

TEST(OpTextTest, EveryOpParsesBack) {
  std::mt19937 random(11);
  const auto number = [&] { return static_cast<int>(random() % 9) - 4; };
  for (int round = 0; round < 20000; ++round) {
    const Op op{.kind = static_cast<OpKind>(random() % kOpKindCount),
                .channel = static_cast<Channel>(random() % kChannelCount),
                .copy = static_cast<Copy>(random() % 5),
                .stage = StageId(number()),
                .iteration = Iteration(number()),
                .lap = Lap(number()),
                .version = round % 3 == 0 ? Prediction(number() + 4) : Version(number()),
                .peer = WorkerId(number())};
    const auto parsed = ParseOp(ToString(op));
    ASSERT_TRUE(parsed.ok()) << ToString(op) << ": " << parsed.status();
    EXPECT_EQ(*parsed, op) << ToString(op);
  }
}

TEST(OpTextTest, WrongWordsAreNamed) {
  for (const std::string text :
       {"G2 t1", "End2", "F2 x1", "F2 p-1", "F2 t", "F2 t1x", "Send nowhere s1", ""}) {
    const auto parsed = ParseOp(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseOp("Send sum s1 y4"), Says("\"y4\""));
}

TEST(OpTextTest, TagsTellMessagesOfOneChannelApart) {
  const Plan plan = MakeTestPlan(
      Shape("3x4 laps=2 stagger evaluate=1 evaluation_laps=2 collect=1 collector=1 statistics"));
  for (const Program& program : ProgramsOf(plan)) {
    std::set<std::tuple<Channel, WorkerId, uint64_t>> tags;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kSend) continue;
      EXPECT_TRUE(tags.insert({op.channel, op.peer, MessageTag(op)}).second) << ToString(op);
    }
  }
}

// Without their operands.
std::vector<Op> OpsOf(const Program& program) { return {program.ops.begin(), program.ops.end()}; }

TEST(ProgramTextTest, RangesConcatenate) {
  const Plan plan = MakeTestPlan(
      {.workers = 3, .stages = 4, .evaluate_every = 2, .collect_every = 3, .statistics = true});
  for (int w = 0; w < 3; ++w) {
    std::vector<Op> joined;
    for (int t = 0; t <= plan.iterations; ++t) {
      RZ_ASSIGN(const auto part, MakeProgram(plan, WorkerId(w), {Iteration(t), Iteration(t + 1)}));
      joined.insert(joined.end(), part.ops.begin(), part.ops.end());
    }
    // Slots are counted from where a program begins.
    EXPECT_EQ(joined, OpsOf(*MakeProgram(plan, WorkerId(w), WholeRun(plan))));
  }
  EXPECT_FALSE(MakeProgram(plan, WorkerId(3), WholeRun(plan)).ok());
  EXPECT_FALSE(MakeProgram(plan, WorkerId(0), {Iteration(0), Iteration(6)}).ok());
}

TEST(ProgramTextTest, PartsConcatenate) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeTestPlan(shape);
    for (int w = 0; w < plan.workers; ++w) {
      std::vector<Instruction> joined;
      RZ_ASSIGN(auto writer, ProgramWriter::Create(plan, WorkerId(w), Iteration(0)));
      while (writer->part().has_value()) {
        const std::vector<Instruction> ops = writer->Next();
        // What a worker may be asked for is not taken to come in a later part.
        const std::optional<ProgramPart> next = writer->part();
        for (const Op& op : ops) {
          if (op.kind != OpKind::kUpdate && op.kind != OpKind::kReceive) continue;
          const bool late = plan.rule == Rule::kDp || plan.predict;  // shows θ, which is one buffer
          const bool shows = late && next.has_value() && next->lap.value > 0;
          EXPECT_TRUE(!next.has_value() || shows || !IsFrom(*next, op)) << ToString(op);
        }
        joined.insert(joined.end(), ops.begin(), ops.end());
      }
      EXPECT_EQ(joined, MakeProgram(plan, WorkerId(w), WholeRun(plan))->ops);
    }
  }
  const Plan plan = MakeTestPlan({.laps = 2});
  EXPECT_FALSE(ProgramWriter::Create(plan, WorkerId(0), Iteration(5)).ok());
  EXPECT_FALSE(ProgramWriter::Create(plan, WorkerId(2), Iteration(0)).ok());
}

TEST(PlanTextTest, PlansParseBack) {
  uint64_t seed = 0;
  int in_files = 0;
  for (const PlanShape& shape : PairwiseShapes()) {
    ++seed;
    Plan plan = MakeTestPlan(shape);
    plan.exchange = seed % 7 != 0;
    plan.window = static_cast<int>(seed);
    plan.stages[0].name = seed % 2 == 0 ? "" : "a name with  spaces";
    RZ_ASSIGN(const auto parsed, ParsePlan(PlanToString(plan)));
    EXPECT_EQ(PlanToString(parsed), PlanToString(plan));
    EXPECT_EQ(parsed.zero_stage, plan.zero_stage);
    EXPECT_EQ(parsed.predict, plan.predict);
    EXPECT_EQ(parsed.strict, plan.strict);
    EXPECT_EQ(parsed.clipping, plan.clipping);
    EXPECT_EQ(parsed.skip_overflows, plan.skip_overflows);
    EXPECT_EQ(parsed.stages[0].name, plan.stages[0].name);
    EXPECT_EQ(parsed.stages[0].state_bytes, plan.stages[0].state_bytes);
    EXPECT_EQ(parsed.collection.versions, plan.collection.versions);
    EXPECT_EQ(parsed.collection.worker, plan.collection.worker);
    EXPECT_EQ(parsed.stages.back().backward_cost, plan.stages.back().backward_cost);
    EXPECT_EQ(parsed.resident_slots, plan.resident_slots);
    in_files += plan.any_streams_parameters() ? 1 : 0;
    EXPECT_TRUE(std::ranges::equal(parsed.stages, plan.stages, {}, &StagePlan::streams_parameters,
                                   &StagePlan::streams_parameters));
  }
  EXPECT_GT(in_files, 0);
}

TEST(PlanTextTest, ErrorsNameLineAndField) {
  const Plan plan = MakeTestPlan({.workers = 2, .stages = 2});
  std::string text = PlanToString(plan);
  text.replace(text.find(" costs "), 7, " prices ");
  EXPECT_THAT(ParsePlan(text), Says("line 2: bad \"costs\""));
  text = PlanToString(plan);
  text.replace(text.find("cdp_v2"), 6, "cdp_v3");
  EXPECT_THAT(ParsePlan(text), Says("cdp_v3"));
  EXPECT_FALSE(ParsePlan("").ok());
}

TEST(CheckPlanTest, NamesTheField) {
  const Plan good = MakeTestPlan({.workers = 2, .stages = 3});
  EXPECT_EQ(CheckPlan(good), absl::OkStatus());
  struct Case {
    std::function<void(Plan&)> change;
    std::string words;
  };
  const std::vector<Case> cases = {
      {[](Plan& p) { p.workers = 0; }, "workers"},
      {[](Plan& p) { p.zero_stage = 4; }, "zero_stage must be 0 to 3, found 4"},
      {[](Plan& p) { p.laps = 0; }, "laps"},
      {[](Plan& p) { p.slack = -1; }, "slack"},
      {[](Plan& p) { p.pending = 0; }, "pending"},
      {[](Plan& p) { p.retain = 4; }, "retain"},
      {[](Plan& p) { p.stages.clear(); }, "stages"},
      {[](Plan& p) { p.collection.every = -1; }, "collection.every"},
      {[](Plan& p) { p.collection.worker = WorkerId(2); },
       "collection.worker must be 0 to 1, found 2"},
      {[](Plan& p) { p.collection.versions.assign(2, 2); }, "collection.versions"},
      {[](Plan& p) { p.collection.versions = {0}; }, "collection.versions"},
      {[](Plan& p) { p.stages[1].owner = WorkerId(2); }, "owner"},
      {[](Plan& p) { p.stages[1].last_use = StageId(0); }, "last_use"},
      {[](Plan& p) { p.stages[2].has_backward = false; }, "backward"},
      {[](Plan& p) { p.stages[1].has_backward = false, p.stages[1].sum_bytes = 0; },
       "has_backward"},
      {[](Plan& p) { p.rule = Rule::kDp, p.stagger = true; }, "stagger"},
      {[](Plan& p) { p.rule = Rule::kCdpV1, p.strict = true; }, "strict"},
      {[](Plan& p) { p.clipping = Clipping::kExact; },
       "exact clipping with cdp_v2 needs its strict form"},
      {[](Plan& p) { p.stages[0].trained_parameters = -1; }, "trained_parameters of stage 0"},
      {[](Plan& p) {
         for (StagePlan& stage : p.stages) stage.forward_cost = stage.backward_cost = 0;
       },
       "cost"}};
  for (const Case& each : cases) {
    Plan plan = good;
    each.change(plan);
    const absl::Status status = CheckPlan(plan);
    EXPECT_THAT(status, Fails(absl::StatusCode::kInvalidArgument, each.words));
  }
}

// Stages 0, 1 and 3 of 4 do.
TEST(CheckPlanTest, ParametersStreamWhereTheyMay) {
  Plan good = MakeTestPlan(Shape("2x4 cdp_v1 one_host parameters"));
  EXPECT_EQ(CheckPlan(good), absl::OkStatus());
  EXPECT_EQ(CheckPlan(MakeTestPlan(Shape("1x4 cdp_v1 parameters"))), absl::OkStatus());
  const std::vector<std::pair<std::string, std::function<void(Plan&)>>> cases = {
      {"streams_parameters of stage 0 (stage0) must be 0", [](Plan& p) { p.zero_stage = 2; }},
      {"streams_parameters of stage 0", [](Plan& p) { p.exchange = false; }},
      {"streams_parameters of stage 0", [](Plan& p) { p.first_iteration = p.iterations; }},
      {"streams_parameters of stage 0", [](Plan& p) { p.hosts.assign(2, 1); }},
      {"streams_parameters of stage 0", [](Plan& p) { p.hosts.clear(); }},
      {"streams_parameters of stage 1", [](Plan& p) { p.stages[1].last_use = StageId(3); }},
      {"streams_parameters of stage 1", [](Plan& p) { p.stages[1].sum_bytes = 0; }},
      {"streams_parameters of stage 1", [](Plan& p) { p.retain = 3; }},
      {"resident_slots must be at least 2, found 1", [](Plan& p) { p.resident_slots = 1; }}};
  for (const auto& [words, change] : cases) {
    Plan plan = good;
    change(plan);
    EXPECT_THAT(CheckPlan(plan), Fails(absl::StatusCode::kInvalidArgument, words));
  }
  good.retain = 2;  // stage 3's backward comes right behind its forward, stage 2's does not
  EXPECT_EQ(CheckPlan(good), absl::OkStatus());
  good.stages[2].streams_parameters = true;
  EXPECT_THAT(CheckPlan(good), Says("streams_parameters of stage 2"));
}

}  // namespace
}  // namespace ringzero
