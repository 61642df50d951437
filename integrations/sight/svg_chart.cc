// Axes, lines, areas and bars.
#include "integrations/sight/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace ringzero {
namespace {

constexpr int kWidth = 560, kHeight = 240;
constexpr int kLeft = 62, kRight = 12, kTop = 14, kBottom = 34;

// From values to pixels.
struct Frame {
  double x0 = 0, x1 = 1, y0 = 0, y1 = 1;
  double X(double x) const { return kLeft + (x - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double Y(double y) const {
    return kHeight - kBottom - (y - y0) / (y1 - y0) * (kHeight - kTop - kBottom);
  }
};

// 1, 2 or 5 times a power of ten: about `count` of them in `range`.
double Step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double head = raw / power;
  return power * (head <= 1 ? 1 : head <= 2 ? 2 : head <= 5 ? 5 : 10);
}

// Likewise of bytes, whose powers are of two.
double StepFor(const Chart& chart, double range) {
  if (chart.unit != "bytes") return Step(range, 4);
  double unit = 1;
  while (range / unit >= 1024) unit *= 1024;
  return unit * Step(range / unit, 4);
}

struct Limits {
  double low = 0, high = 0;
};
// Whether these can be told apart on an axis: a step between them is more than a rounding error.
bool Spans(double low, double high) {
  return high - low > 1e-9 * std::max(std::fabs(low), std::fabs(high));
}
Frame FrameOf(const Chart& chart, Limits x, Limits y) {
  auto& [x0, x1] = x;
  auto& [y0, y1] = y;
  if (!Spans(x0, x1)) x1 = x0 + std::max(1.0, std::fabs(x0) * 0.1);
  // Near enough to zero to begin there.
  if (y0 > 0 && y0 < 0.6 * y1) y0 = 0;
  if (!Spans(y0, y1)) {
    const double around = y0 == 0 ? 1 : std::fabs(y0) * 0.1;
    y0 -= y0 == 0 ? 0 : around;
    y1 += around;
  }
  const double step = StepFor(chart, y1 - y0);
  return {x0, x1, std::floor(y0 / step) * step, std::ceil(y1 / step) * step};
}

void AppendChartText(std::string& svg, double x, double y, absl::string_view style,
                     absl::string_view text) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>", x, y, std::string(style),
                        EscapeXml(text));
}

std::string Axes(const Chart& chart, const Frame& frame) {
  std::string svg;
  const double y_step = StepFor(chart, frame.y1 - frame.y0);
  for (double y = frame.y0; y <= frame.y1 + y_step / 2; y += y_step) {
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>",
                          kLeft, kWidth - kRight, frame.Y(y), frame.Y(y));
    AppendChartText(svg, kLeft - 6, frame.Y(y) + 4, "text-anchor=\"end\"",
                    chart.unit == "bytes" ? BytesText(y) : NumberText(y));
  }
  const double x_step = std::max(1.0, Step(frame.x1 - frame.x0, 6));
  for (double x = std::ceil(frame.x0 / x_step) * x_step; x <= frame.x1; x += x_step) {
    AppendChartText(svg, frame.X(x), kHeight - kBottom + 15, "text-anchor=\"middle\"",
                    NumberText(x));
  }
  AppendChartText(svg, kWidth - kRight, kHeight - 4, "text-anchor=\"end\" class=\"label\"",
                  chart.x_label);
  return svg;
}

std::string CurveColour(const Chart& chart, size_t i) {
  const std::string& own = chart.series[i].colour;
  return own.empty() ? ChartColour(i) : own;
}

std::string LegendEntry(const std::string& colour, const std::string& name) {
  return absl::StrCat("<span><i style=\"background:", colour, "\"></i>", EscapeXml(name),
                      "</span>");
}

std::string Figure(const Chart& chart, const std::string& body) {
  std::string legend;
  for (size_t i = 0; i < chart.series.size() && chart.series.size() > 1; ++i) {
    legend += LegendEntry(CurveColour(chart, i), chart.series[i].name);
  }
  const std::string unit =
      chart.unit.empty() || chart.unit == "bytes" ? "" : absl::StrCat(" (", chart.unit, ")");
  return absl::StrFormat(
      "<figure><figcaption>%s%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">%s</svg>"
      "<div class=\"legend\">%s</div></figure>\n",
      EscapeXml(chart.title), EscapeXml(unit), kWidth, kHeight, body, legend);
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

std::string Empty(const Chart& chart) {
  return absl::StrCat("<figure><figcaption>", EscapeXml(chart.title),
                      "</figcaption><p class=\"none\">nothing was measured</p></figure>\n");
}

}  // namespace

std::string ChartColour(size_t i) {
  constexpr std::array<const char*, 10> kColours = {"#2f6fb2", "#e08a2e", "#3a9a5f", "#c0504d",
                                                    "#8064a2", "#4bacc6", "#9c8a3c", "#d77fb3",
                                                    "#7f7f7f", "#a0c04c"};
  return kColours[i % kColours.size()];
}

std::string EscapeXml(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit + 1 < kUnits.size() && std::fabs(bytes) >= 1024; ++unit) bytes /= 1024;
  return absl::StrFormat("%.*f %s", bytes == std::floor(bytes) ? 0 : 1, bytes, kUnits[unit]);
}

std::string NumberText(double value) {
  const double size = std::fabs(value);
  if (size >= 1e9) return absl::StrFormat("%.4g G", value / 1e9);
  if (size >= 1e6) return absl::StrFormat("%.4g M", value / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.4g k", value / 1e3);
  // A step's rounding shows as -1e-17.
  return size < 1e-12 ? "0" : absl::StrFormat("%.4g", value);
}

std::string LineChart(const Chart& chart) {
  Range x, y;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [at, value] : series.points) {
      x.Add(at);
      y.Add(value);
    }
  }
  if (x.empty() || y.empty()) return Empty(chart);
  const Frame frame = FrameOf(chart, {x.low, x.high}, {y.low, y.high});
  std::string svg = Axes(chart, frame);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    std::string line;
    for (const auto& [at, value] : series.points) {
      if (!std::isfinite(value)) continue;
      if (series.mark == ChartSeries::Mark::kLine) {
        absl::StrAppendFormat(&line, "%s%.1f,%.1f", line.empty() ? "" : " ", frame.X(at),
                              frame.Y(value));
      } else {
        absl::StrAppendFormat(&svg,
                              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>%s: "
                              "%.5g</title></circle>",
                              frame.X(at), frame.Y(value), CurveColour(chart, i),
                              EscapeXml(series.name), value);
      }
    }
    if (line.empty()) continue;
    absl::StrAppend(&svg, "<polyline fill=\"none\" stroke=\"", CurveColour(chart, i),
                    "\" stroke-width=\"1.6\" points=\"", line, "\"/>");
  }
  return Figure(chart, svg);
}

std::string StackedChart(const Chart& chart) {
  if (chart.series.empty() || chart.series[0].points.empty()) return Empty(chart);
  const size_t count = chart.series[0].points.size();
  std::vector<double> below(count, 0);
  Range x, y;
  y.Add(0);
  for (size_t n = 0; n < count; ++n) {
    double sum = 0;
    for (const ChartSeries& series : chart.series) sum += std::max(series.points[n].second, 0.0);
    x.Add(chart.series[0].points[n].first);
    y.Add(sum);
  }
  const Frame frame = FrameOf(chart, {x.low, x.high}, {0, y.high});
  std::string svg = Axes(chart, frame);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    std::string upper, lower;
    for (size_t n = 0; n < count; ++n) {
      const auto& [at, value] = chart.series[i].points[n];
      lower = absl::StrFormat(" %.1f,%.1f", frame.X(at), frame.Y(below[n])) + lower;
      below[n] += std::max(value, 0.0);
      absl::StrAppendFormat(&upper, " %.1f,%.1f", frame.X(at), frame.Y(below[n]));
    }
    absl::StrAppend(&svg, "<polygon fill=\"", CurveColour(chart, i),
                    "\" fill-opacity=\"0.85\" points=\"", upper.substr(1), lower, "\"><title>",
                    EscapeXml(chart.series[i].name), "</title></polygon>");
  }
  return Figure(chart, svg);
}

std::string HorizontalBars(const BarChart& chart) {
  constexpr int kBarLeft = 96, kBarHeight = 12;
  const int group = kBarHeight * static_cast<int>(chart.groups.size()) + 10;
  const int height = group * static_cast<int>(chart.bars.size()) + 6;
  double most = 0;
  for (const Bar& bar : chart.bars) {
    for (const double value : bar.values) most = std::max(most, value);
  }
  std::string svg;
  for (size_t b = 0; b < chart.bars.size(); ++b) {
    const double top = 4 + static_cast<double>(group) * static_cast<double>(b);
    AppendChartText(svg, kBarLeft - 8, top + group / 2.0, "text-anchor=\"end\"",
                    chart.bars[b].name);
    for (size_t g = 0; g < chart.bars[b].values.size(); ++g) {
      const double value = chart.bars[b].values[g];
      const double length = most > 0 ? value / most * (kWidth - kBarLeft - 90) : 0;
      const double y = top + kBarHeight * static_cast<double>(g);
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>",
                            kBarLeft, y, length, kBarHeight - 2, ChartColour(g));
      AppendChartText(svg, kBarLeft + length + 6, y + kBarHeight - 3, "",
                      chart.bytes ? BytesText(value) : NumberText(value));
    }
  }
  std::string legend;
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    legend += LegendEntry(ChartColour(g), chart.groups[g]);
  }
  return absl::StrFormat(
      "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">%s</svg>"
      "<div class=\"legend\">%s</div></figure>\n",
      EscapeXml(chart.title), kWidth, height, svg, legend);
}

}  // namespace ringzero
