// A page has what its script draws, stands alone, and has the schedule beside its prediction.
#include "integrations/sight/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integrations/sight/chrome_trace.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using Json = nlohmann::json;

RunFolder SomeRun(int workers) {
  const ToyOptions options{.workers = workers, .stages = 4, .iterations = 8};
  RunFolder run{.name = "a <run>", .config = {{"/cyclic/workers", workers}}};
  run.plan = ToyPlan(options);
  run.plan.window = *SmallestWindow(run.plan);
  run.about = {{"parameters", 1234}, {"not_measured", {"the <moon>"}}};
  const absl::StatusOr<ToyResult> result = RunToyRing(options, ShmTransports());
  EXPECT_TRUE(result.ok()) << result.status();
  run.flights = result->flights;
  for (int i = 1; i <= 8; ++i) {
    run.scalars["Train/Samples/train_loss"].emplace_back(i, 1.0 / i);
  }
  return run;
}

// What the page's script reads.
Json RunsIn(const std::string& html) {
  const std::string begin = "<script id=\"runs\" type=\"application/json\">";
  const size_t from = html.find(begin) + begin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

// All that the workers do while they don't wait.
std::set<std::string> OperationsOf(const Json& part) {
  std::set<std::string> operations;
  for (const Json& worker : part["workers"]) {
    for (const Json& slice : worker[1]) {
      if (slice[0] == "") operations.insert(slice[3].get<std::string>());
    }
  }
  return operations;
}

TEST(ReportTest, HasEveryPartAndNeedsNothingElse) {
  const std::vector<RunFolder> runs = {SomeRun(3), SomeRun(2)};
  const std::string html = Report(runs);
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http")), Not(HasSubstr("src=")), Not(HasSubstr("<run>")),
                          Not(HasSubstr("<moon>"))));
  const Json read = RunsIn(html);
  ASSERT_EQ(read.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read[i]["name"], "a <run>");
    EXPECT_EQ(read[i]["about"], runs[i].about);
    EXPECT_EQ(read[i]["config"], runs[i].config);
    EXPECT_EQ(read[i]["scalars"]["Train/Samples/train_loss"][3], Json({4, 0.25}));
    EXPECT_EQ(read[i]["schedule"]["last"], 7);
    EXPECT_EQ(read[i]["schedule"]["measured"]["workers"].size(), runs[i].flights.size());
    EXPECT_GT(read[i]["schedule"]["predicted"]["length"], 0);
  }
}

TEST(ReportTest, ARunThatLeftNothing) {
  RunFolder run{.config = Json::object()};
  run.plan = ToyPlan({.workers = 2});
  EXPECT_EQ(RunsIn(Report({&run, 1}))[0]["schedule"]["none"],
            "no flight records of whole iterations of all workers");
}

TEST(ReportTest, HasEveryStageOfTheIterations) {
  const RunFolder run = SomeRun(2);
  const auto shown = LastWhole(run.flights, 2);
  ASSERT_TRUE(shown.has_value());
  EXPECT_EQ(shown->first, Iteration(6));
  EXPECT_EQ(shown->second, Iteration(8));
  const auto [from, to] = TimesOf(run.flights, *shown);
  ASSERT_LT(from, to);
  const Json schedule = RunsIn(Report({&run, 1}))[0]["schedule"];
  EXPECT_EQ(schedule["measured"]["length"], to - from);
  for (const char* part : {"measured", "predicted"}) {
    const std::set<std::string> operations = OperationsOf(schedule[part]);
    for (const char* kind : {"F", "B"}) {
      for (int j = 0; j < 4; ++j) {
        for (const int t : {6, 7}) {
          const std::string operation = absl::StrCat(kind, j, " t", t, " l0");
          EXPECT_THAT(operations, Contains(HasSubstr(operation))) << part;
        }
      }
    }
  }
  const SimulationOptions speed = MeasuredSpeed(run.flights, 4);
  for (const StageTicks& each : speed.stage_ticks) {
    EXPECT_GT(each.forward, 0);
    EXPECT_GT(each.backward, 0);
  }
}

TEST(PlanFigureTest, HasTheScheduleWhatIsSentAndActivations) {
  Plan plan = ToyPlan({.workers = 2, .stages = 4, .iterations = 8});
  plan.window = *SmallestWindow(plan);
  RZ_ASSIGN(const std::string svg, PlanFigure(plan, {}));
  for (const char* part :
       {"<svg", "B3", "by channel", "activations", "iterations 3 and 4, simulated"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
}

}  // namespace
}  // namespace ringzero
