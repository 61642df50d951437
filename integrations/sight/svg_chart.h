// Charts as SVG that stands in a page: lines, stacked columns, bars.
//
//   std::string svg = LineChart({.title = "loss", .x_label = "iteration",
//                                .series = {{"training", {{0, 2.3}, {1, 1.9}}}}});
//
// Pure functions. Texts are escaped. What is not finite is left out.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_SVG_CHART_H_
#define RINGZERO_INTEGRATIONS_SIGHT_SVG_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringzero {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
  enum class Mark { kLine, kDots } mark = Mark::kLine;
  std::string colour;  // empty: ChartColour of its place
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string unit;  // behind the numbers of the y axis
  std::vector<ChartSeries> series;
};

// The y axis begins at 0 unless values are far from it.
std::string LineChart(const Chart& chart);
// Series on top of each other; all have the same x values.
std::string StackedChart(const Chart& chart);

struct Bar {
  std::string name;
  std::vector<double> values;  // one per group
};
struct BarChart {
  std::string title;
  std::vector<std::string> groups;
  std::vector<Bar> bars;
  bool bytes = false;  // values are bytes
};
std::string HorizontalBars(const BarChart& chart);

// The colour of series i, unless it has one of its own.
std::string ChartColour(size_t i);
// "1.2 MiB"; "12.3 k".
std::string BytesText(double bytes);
std::string NumberText(double value);
std::string EscapeXml(absl::string_view text);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_SVG_CHART_H_
