// A page of a small run has every part, stands alone, and shows the schedule beside its prediction.
#include "integrations/sight/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "integrations/sight/schedule_chart.h"
#include "integrations/sight/svg_chart.h"
#include "sharding/verify.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunFolder SomeRun(int workers) {
  const ToyOptions options{.workers = workers, .stages = 4, .iterations = 8};
  RunFolder run;
  run.plan = ToyPlan(options);
  run.plan.window = *SmallestWindow(run.plan);
  run.parameters = 1234;
  run.not_measured = {"the <moon>"};
  const absl::StatusOr<ToyResult> result = RunToyRing(options, ShmTransports());
  EXPECT_TRUE(result.ok()) << result.status();
  run.flights = result->flights;
  for (const char* name :
       {"Train/Samples/train_loss", "Train/Samples/lr", "Ring/Samples/iteration_ms",
        "Ring/Samples/samples_per_second", "Train/Samples/elapsed_time_ms_forward",
        "Train/Samples/elapsed_time_ms_backward", "Ring/Samples/wait_ms_parameters",
        "Ring/Samples/wait_ms_gradient_sums", "Ring/Samples/wait_ms_update",
        "Ring/Samples/wait_ms_other", "Ring/Samples/bytes_forward", "Ring/Samples/bytes_backward",
        "Ring/Samples/bytes_inject", "Ring/Samples/bytes_sum", "Ring/Samples/bytes_retire",
        "Ring/Samples/bytes_other", "Ring/Samples/memory_masters"}) {
    for (int i = 1; i <= 8; ++i) run.scalars[name].emplace_back(i, 1.0 / i);
  }
  return run;
}

TEST(ReportTest, HasEveryPartAndNeedsNothingElse) {
  const std::string html = Report(SomeRun(3), "a <run>");
  for (const char* part :
       {"<h1>a &lt;run&gt;</h1>", "Loss", "Samples a second", "measured, iterations", "predicted",
        "Where the mean worker", "Sent by the whole ring", "Model states and buffers",
        "the &lt;moon&gt;"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http")), Not(HasSubstr("src=")), Not(HasSubstr("nan")),
                          Not(HasSubstr("inf,"))));
}

TEST(ReportTest, ARunThatLeftNothing) {
  RunFolder run;
  run.plan = ToyPlan({.workers = 2});
  const std::string html = Report(run, "empty");
  EXPECT_THAT(html, AllOf(HasSubstr("nothing was measured"),
                          HasSubstr("no flight records of whole iterations")));
}

TEST(ScheduleChartTest, ShowsEveryStageOfTheIterations) {
  const RunFolder run = SomeRun(2);
  const auto shown = LastWhole(run.flights, 2);
  ASSERT_TRUE(shown.has_value());
  EXPECT_EQ(shown->first, Iteration(6));
  EXPECT_EQ(shown->second, Iteration(8));
  const auto [from, to] = TimesOf(run.flights, *shown);
  ASSERT_LT(from, to);
  const std::string svg = ScheduleChart(run.flights, {.from = from, .to = to});
  for (int j = 0; j < 4; ++j) {
    for (const char* kind : {"F", "B"}) {
      for (const int t : {6, 7}) {
        EXPECT_THAT(svg, HasSubstr(absl::StrCat(kind, j, " t", t, " l0")));
      }
    }
  }
  const std::vector<StageTicks> ticks = MeasuredTicks(run.flights, 4);
  for (const StageTicks& each : ticks) {
    EXPECT_GT(each.forward, 0);
    EXPECT_GT(each.backward, 0);
  }
}

TEST(SvgChartTest, ValuesThatRoundingAloneTellsApartEnd) {
  const double rate = 0.05;
  const double far = 9007199254740992.0;  // 2^53: one more is the same
  for (const auto& points :
       {std::vector<std::pair<double, double>>{{0, rate}, {1, std::nextafter(rate, 1)}},
        {{far, 1}, {far + 2, 2}}}) {
    const std::string svg =
        LineChart({.title = "rate", .series = {{.name = "a", .points = points}}});
    EXPECT_LT(svg.size(), 10000u);
    EXPECT_THAT(svg, testing::HasSubstr("class=\"grid\""));
  }
}

TEST(SvgChartTest, NumbersAsPeopleReadThem) {
  EXPECT_EQ(NumberText(0.00025), "0.00025");
  EXPECT_EQ(NumberText(12345), "12.35 k");
  EXPECT_EQ(NumberText(2.5e9), "2.5 G");
  EXPECT_EQ(NumberText(-1e-17), "0");
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
}

}  // namespace
}  // namespace ringzero
