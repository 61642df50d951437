// What is printed and drawn: golden files for the grids, programs and descriptions.
// RINGZERO_REWRITE_GOLDEN=1 writes them anew.
#include "sharding/study/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Tests run in the project's root.
void ExpectGolden(const std::string& name, const std::string& found) {
  const std::string path = "tests/sharding/golden/" + name;
  if (std::getenv("RINGZERO_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << found;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; RINGZERO_REWRITE_GOLDEN=1 writes it";
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(found, wanted.str()) << path;
}

TEST(RenderTextTest, GridsOfEveryRule) {
  for (const int n : {3, 4}) {
    const PlanShape shape{.workers = n, .stages = n, .iterations = 2};
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (int slack = 0; slack <= (rule == Rule::kCdpV2 ? 1 : 0); ++slack) {
        PlanShape variant = shape;
        variant.rule = rule;
        variant.slack = slack;
        const std::string suffix = rule == Rule::kCdpV2 ? absl::StrCat("_slack", slack) : "";
        ExpectGolden(absl::StrCat("grid_n", n, "_", ToString(rule), suffix, ".txt"),
                     RenderText(MakeTestPlan(variant), 2));
      }
    }
  }
}

// 4 workers, 16 stages: 2 iterations are 88 ticks, 353 columns in one piece.
TEST(RenderTextTest, WideGridsGoOnBelow) {
  const Plan plan = MakeTestPlan({.workers = 4, .stages = 16, .iterations = 2});
  const std::string text = RenderText(plan, 2);
  std::map<std::string, std::string> rows;  // the blocks of each row, one after the other
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 120u) << line;
    EXPECT_NE(line.back(), ' ') << line;
    if (line.size() > 8) rows[line.substr(0, 8)] += line.substr(8);
  }
  ASSERT_EQ(rows.size(), 5u) << text;
  for (const auto& [name, row] : rows) {
    std::vector<std::string> cells = absl::StrSplit(row, absl::ByAnyChar(" |"), absl::SkipEmpty());
    const size_t late = name == "tick    " ? 24 : 0;  // the last worker begins so many ticks later
    ASSERT_EQ(cells.size(), 64u + late) << name;
    EXPECT_EQ(cells.back(), late > 0 ? "87" : "b0") << name;
    EXPECT_EQ(row.back() == '|', late == 0) << name;
  }
}

TEST(RenderTextTest, GridsOfOtherShapes) {
  ExpectGolden("grid_n3_s6.txt", RenderText(MakeTestPlan({.workers = 3, .stages = 6}), 2));
  ExpectGolden(
      "grid_n2_two_laps.txt",
      RenderText(MakeTestPlan({.workers = 2, .stages = 2, .laps = 2, .rule = Rule::kCdpV1}), 2));
  ExpectGolden(
      "grid_n3_frozen_prefix.txt",
      RenderText(MakeTestPlan(
                     {.workers = 3, .stages = 4, .rule = Rule::kCdpV1, .frozen = Frozen::kPrefix}),
                 2));
  ExpectGolden("grid_n1.txt", RenderText(MakeTestPlan({.workers = 1, .stages = 3}), 2));
}

TEST(RenderTextTest, SaysWhatTheScheduleSays) {
  const std::string text =
      RenderText(MakeTestPlan({.workers = 3, .stages = 3, .rule = Rule::kCdpV2, .slack = 0}), 1);
  EXPECT_THAT(text, HasSubstr("worker 0|f0 f1 F2 B2 b1 b0|"));
  EXPECT_THAT(text, HasSubstr("worker 2            |F0 F1 F2 B2 B1 B0|"));
}

TEST(ProgramTest, ReadsAsItShould) {
  const Plan plan = MakeTestPlan(
      {.workers = 2, .stages = 2, .iterations = 2, .evaluate_every = 1, .statistics = true});
  std::string text;
  for (const Program& program : ProgramsOf(plan)) absl::StrAppend(&text, ToString(program), "\n");
  ExpectGolden("programs_n2_cdp_v2.txt", text);
}

// Stages 0, 1 and 3 lie in files, and are read through two slots.
TEST(ProgramTest, LoadsVersionsFromFiles) {
  const Plan plan = MakeTestPlan(Shape("1x4 cdp_v1 parameters iterations=2"));
  std::string text;
  const std::vector<Program> programs = ProgramsOf(plan);
  for (const Instruction& op : programs[0].ops) absl::StrAppend(&text, WithOperands(op), "\n");
  ExpectGolden("program_n1_cdp_v1_parameters.txt", text);
}

absl::StatusOr<std::string> Described(Plan plan) {
  RZ_ASSIGN_OR_RETURN(const PlanProof proof, ProvePlan(plan));
  plan.window = proof.window();
  RZ_ASSIGN_OR_RETURN(const ShortRun run, ShortRun::Make(plan));
  return DescribePlan(plan, proof, run);
}

TEST(DescribePlanTest, SaysEverythingOnce) {
  RZ_ASSIGN(const auto text,
            Described(MakeTestPlan(
                Shape("4x8 laps=2 statistics tied retain=1 frozen_middle backward_twice"))));
  ExpectGolden("describe_n4_s8.txt", text);
  EXPECT_THAT(text, Not(HasSubstr("warning")));
}

TEST(DescribePlanTest, WarnsOfWorkersThatOwnNothing) {
  RZ_ASSIGN(const auto text, Described(MakeTestPlan({.workers = 4, .stages = 3})));
  EXPECT_THAT(text, HasSubstr("warning     4 workers, but only 3 stages: 1 worker owns nothing"));
}

TEST(DescribePlanTest, GivesTheErrorOfAPlanThatCannotRun) {
  Plan plan = MakeTestPlan({.workers = 3, .stages = 3, .laps = 2, .rule = Rule::kCdpV1});
  plan.window = 1;
  EXPECT_EQ(Described(plan).status().code(), absl::StatusCode::kFailedPrecondition);
  plan.workers = 0;
  EXPECT_EQ(Described(plan).status().code(), absl::StatusCode::kInvalidArgument);
}

int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// Every element is closed by its own kind.
void ExpectWellFormed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const bool closing = xml[at + 1] == '/';
    const size_t begin = at + (closing ? 2 : 1);
    const std::string name = xml.substr(begin, xml.find_first_of(" />", begin) - begin);
    if (closing) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else if (xml[end - 1] != '/') {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(RenderSvgTest, ShowsEveryCellAndTheWayOfOneSum) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const PlanShape& shape :
         {PlanShape{.workers = 4, .stages = 4}, PlanShape{.workers = 8, .stages = 16},
          PlanShape{.workers = 3, .stages = 3, .laps = 2},
          PlanShape{.workers = 3, .stages = 3, .zero_stage = 0},
          PlanShape{.workers = 1, .stages = 1},
          PlanShape{.workers = 2, .stages = 4, .frozen = Frozen::kPrefix}}) {
      PlanShape variant = shape;
      variant.rule = rule;
      const Plan plan = MakeTestPlan(variant);
      const std::string svg = RenderSvg(plan, 2);
      ExpectWellFormed(svg);
      EXPECT_THAT(svg,
                  AllOf(HasSubstr("<svg xmlns="), Not(HasSubstr("nan")), Not(HasSubstr("href"))));
      int stale = 0;
      const std::vector<GridCell> cells = LockstepGrid(plan, 2);
      for (const GridCell& cell : cells) stale += !cell.is_fresh();
      EXPECT_EQ(Count(svg, "rx=\"3\" fill=\"url(#stale)\""), stale);
      EXPECT_EQ(Count(svg, "rx=\"3\" fill=\"hsl("), static_cast<int>(cells.size()));
      // A dot where each micro-batch adds its own, and one in the legend.
      const int dots = plan.workers > 1 ? plan.workers * plan.laps + 1 : 0;
      EXPECT_EQ(Count(svg, "<circle"), dots) << Describe(variant);
      // A diamond for each who updates.
      const int updates = plan.workers == 1 ? 0 : plan.zero_stage == 0 ? plan.workers : 1;
      EXPECT_EQ(Count(svg, "l6 6l-6 6l-6 -6z"), updates) << Describe(variant);
    }
  }
}

TEST(DescribePlanTest, SaysWhatZeroShards) {
  Plan plan = MakeTestPlan({.workers = 3, .stages = 3, .rule = Rule::kDp});
  const char* const said[] = {"zero stage  0: everybody has all masters",
                              "zero stage  1: optimizer",
                              "zero stage  2: optimizer states and gradients are sharded",
                              "zero stage  3: optimizer states, gradients and parameters"};
  for (plan.zero_stage = 0; plan.zero_stage <= 3; ++plan.zero_stage) {
    RZ_ASSIGN(const std::string text, Described(plan));
    EXPECT_THAT(text, HasSubstr(said[plan.zero_stage]));
    EXPECT_EQ(Count(text, "owners      everybody"), plan.zero_stage == 0 ? 1 : 0);
    EXPECT_THAT(text, HasSubstr("1 pending gradient\n")) << "of any stage";
  }
}

TEST(RenderSvgTest, EscapesNothingBecauseItPrintsNoNames) {
  Plan plan = MakeTestPlan({.workers = 2, .stages = 2});
  plan.stages[0].name = "<&\"";
  ExpectWellFormed(RenderSvg(plan, 1));
}

}  // namespace
}  // namespace ringzero
