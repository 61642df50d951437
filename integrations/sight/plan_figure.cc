// Panels of stacked areas under the grid of sharding/render.h; events as records.
#include "integrations/sight/plan_figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "sharding/predicted_events.h"
#include "sharding/render.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

constexpr double kPanelWidth = 960, kPanelLeft = 84, kPanelRight = 16;  // as the grid's
constexpr double kPanel = 190, kPlot = 110;                             // heights
constexpr int kBins = 240;
constexpr int kSimulated = 6;  // iterations; those shown begin after kBefore
constexpr int kBefore = 3;

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

// 12.35 k.
std::string NumberText(double value) {
  const double size = std::fabs(value);
  if (size >= 1e9) return absl::StrFormat("%.4g G", value / 1e9);
  if (size >= 1e6) return absl::StrFormat("%.4g M", value / 1e6);
  if (size >= 1e4) return absl::StrFormat("%.4g k", value / 1e3);
  // A step's rounding shows as -1e-17.
  return size < 1e-12 ? "0" : absl::StrFormat("%.4g", value);
}

struct Series {
  std::string name;
  std::array<double, kBins> values = {};
};

struct Panel {
  std::string title;
  std::string (*number)(double) = NumberText;
  std::vector<Series> series;
};

// What is shown of the simulated run, cut into bins.
struct Window {
  int64_t begin = 0, end = 1;
  double bin_ticks() const { return static_cast<double>(end - begin) / kBins; }
  // -1: outside.
  int Bin(int64_t tick) const {
    if (tick < begin || tick >= end) return -1;
    return std::min(kBins - 1, static_cast<int>(static_cast<double>(tick - begin) / bin_ticks()));
  }
};

// From worker 0's first forward of the first shown iteration to that of the first not shown.
Window WindowOf(const Simulation& run) {
  Window window;
  for (const ComputedOp& computed : run.computed) {
    const bool first = computed.worker == 0 && computed.op.kind == OpKind::kForward &&
                       computed.op.stage.value == 0 && computed.op.lap.value == 0;
    if (first && computed.op.iteration.value == kBefore) window.begin = computed.start_tick;
    if (first && computed.op.iteration.value == kBefore + kFigureIterations) {
      window.end = computed.start_tick;
    }
  }
  window.end = std::max(window.end, window.begin + 1);
  return window;
}

absl::StatusOr<Panel> Traffic(const Plan& plan, const SimulationOptions& speed,
                              const Window& window) {
  RZ_ASSIGN_OR_RETURN(const auto events, PredictEvents(plan, speed));
  std::map<Channel, Series> channels;
  for (const std::vector<Event>& worker : events) {
    for (const Event& event : worker) {
      if (event.kind != EventKind::kEnd || event.op.kind != OpKind::kSend) continue;
      if (event.op.stage == kNoStage) continue;
      const double bytes = static_cast<double>(MessageBytes(plan, event.op, /*metrics_count=*/0));
      const int bin = window.Bin(event.time);
      if (bin < 0 || bytes == 0) continue;
      Series& series = channels[event.op.channel];
      series.name = ToString(event.op.channel);
      series.values[static_cast<size_t>(bin)] += bytes / (1e-9 * window.bin_ticks());
    }
  }
  Panel panel{.title = "sent, bytes per second, by channel", .number = BytesText};
  for (auto& [channel, series] : channels) panel.series.push_back(std::move(series));
  return panel;
}

// The most of each in every bin, of all workers together.
std::vector<Panel> HeldPanels(const Plan& plan, const Simulation& run, const Window& window) {
  struct Kind {
    const char* name;
    int64_t Held::*what;
  };
  constexpr Kind kBytes[] = {{"versions", &Held::versions_bytes},
                             {"copies", &Held::copies_bytes},
                             {"sums", &Held::sums_bytes}};
  const auto series = [&](const Kind& kind, double scale) {
    Series result{.name = kind.name};
    std::vector<int64_t> now(static_cast<size_t>(plan.workers), 0);
    int64_t held = 0;
    int filled = 0;  // bins before this one are done
    for (const Held& sample : run.held) {
      const int bin = window.Bin(sample.tick);
      const int until = sample.tick >= window.end ? kBins : std::max(bin, 0);
      for (; filled < until; ++filled) {
        double& next = result.values[static_cast<size_t>(filled)];
        next = std::max(next, scale * static_cast<double>(held));
      }
      if (until == kBins) break;
      int64_t& worker = now[static_cast<size_t>(sample.worker)];
      held += sample.*kind.what - std::exchange(worker, sample.*kind.what);
      if (bin >= 0) {
        double& most = result.values[static_cast<size_t>(bin)];
        most = std::max(most, scale * static_cast<double>(held));
      }
    }
    return result;
  };
  Panel bytes{.title = "held by all workers together, each in memory of its own",
              .number = BytesText};
  for (const Kind& kind : kBytes) bytes.series.push_back(series(kind, 1));
  Panel activations{.title = "activations of all workers together, in micro-batches"};
  activations.series.push_back(
      series({"activations", &Held::activations}, 1.0 / plan.stage_count()));
  return {std::move(bytes), std::move(activations)};
}

void AppendPanelText(std::string& svg, double x, double y, const char* style,
                     const std::string& text) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style,
                        EscapeXml(text));
}

enum class Way { kRight, kLeft };
// A path over all bins: a step where the height changes.
std::string Steps(const std::array<double, kBins>& y, Way way) {
  const double column = (kPanelWidth - kPanelLeft - kPanelRight) / kBins;
  const bool right = way == Way::kRight;
  std::string path;
  for (int i = 0; i < kBins; ++i) {
    const int bin = right ? i : kBins - 1 - i;
    const double x = kPanelLeft + column * (right ? bin : bin + 1),
                 now = y[static_cast<size_t>(bin)];
    if (i == 0) {
      path = absl::StrFormat("%.1f %.1f", x, now);
    } else if (now != y[static_cast<size_t>(right ? bin - 1 : bin + 1)]) {
      absl::StrAppendFormat(&path, "H%.1fV%.1f", x, now);
    }
  }
  return path + absl::StrFormat("H%.1f", kPanelLeft + (right ? column * kBins : 0));
}

// Stacked steps, their legend, and the axis of values. `y`: of the panel's top.
std::string Draw(const Panel& panel, double y) {
  std::array<double, kBins> below = {};
  double most = 0;
  for (int b = 0; b < kBins; ++b) {
    double sum = 0;
    for (const Series& series : panel.series) sum += series.values[static_cast<size_t>(b)];
    most = std::max(most, sum);
  }
  const double top = y + 44, scale = most > 0 ? kPlot / most : 0;
  std::string svg;
  AppendPanelText(svg, 16, y + 16, "font-size=\"13\" font-weight=\"600\"", panel.title);
  for (const double share : {0.0, 0.5, 1.0}) {
    const double line = top + kPlot - share * kPlot;
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#d5dce5\" fill=\"none\"/>\n",
                          kPanelLeft, line, kPanelWidth - kPanelRight);
    AppendPanelText(svg, kPanelLeft - 6, line + 4, "font-size=\"11\" text-anchor=\"end\"",
                    panel.number(share * most));
  }
  double legend = kPanelLeft;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    std::array<double, kBins> low = {}, high = {};  // as pixels
    for (size_t b = 0; b < kBins; ++b) {
      low[b] = top + kPlot - scale * below[b];
      below[b] += series.values[b];
      high[b] = top + kPlot - scale * below[b];
    }
    const std::string colour = ChartColour(i);
    absl::StrAppendFormat(&svg, "<path d=\"M%sL%sz\" fill=\"%s\"/>\n", Steps(high, Way::kRight),
                          Steps(low, Way::kLeft), colour);
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n",
                          legend, y + 25, colour);
    AppendPanelText(svg, legend + 16, y + 35, "font-size=\"12\"", series.name);
    legend += 40 + 6.6 * static_cast<double>(series.name.size());
  }
  return svg;
}

// The grid's own height, from its first line.
double HeightOf(const std::string& svg) {
  const size_t at = svg.find(" height=\"");
  return at == std::string::npos ? 0 : std::stod(svg.substr(at + 9));
}

}  // namespace

absl::StatusOr<std::string> PlanFigure(const Plan& plan, const SimulationOptions& speed) {
  Plan simulated = plan;
  simulated.iterations = kSimulated;
  simulated.evaluation = {};
  simulated.collection = {};
  RZ_ASSIGN_OR_RETURN(const Simulation run, Simulate(simulated, speed));
  const Window window = WindowOf(run);
  RZ_ASSIGN_OR_RETURN(Panel traffic, Traffic(simulated, speed, window));
  std::vector<Panel> panels = HeldPanels(simulated, run, window);
  panels.insert(panels.begin(), std::move(traffic));
  const std::string grid = RenderSvg(plan, std::min(kFigureIterations, plan.iterations));
  double y = HeightOf(grid);
  std::string body;
  for (const Panel& panel : panels) {
    body += Draw(panel, y);
    y += kPanel;
  }
  AppendPanelText(
      body, kPanelWidth - kPanelRight, y - 14, "font-size=\"11\" text-anchor=\"end\"",
      absl::StrFormat("iterations %d and %d, simulated: %.4g ms in all", kBefore, kBefore + 1,
                      1e-6 * static_cast<double>(window.end - window.begin)));
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, "
      "Arial, sans-serif\" fill=\"#1f2933\">\n<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" "
      "fill=\"#fff\"/>\n%s%s</svg>\n",
      kPanelWidth, y, kPanelWidth, y, kPanelWidth, y, grid, body);
}

absl::StatusOr<std::vector<FlightRecord>> PredictedRecords(Plan plan,
                                                           const SimulationOptions& speed) {
  plan.iterations = std::min(plan.iterations, kPredictedIterations);
  std::erase_if(plan.collection.versions, [&](int version) { return version > plan.iterations; });
  RZ_ASSIGN_OR_RETURN(std::vector<std::vector<Event>> events, PredictEvents(plan, speed));
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    records.push_back({.worker = WorkerId(w),
                       .workers = plan.workers,
                       .why = "a prediction",
                       .clock = "nanoseconds of the simulation"});
    records.back().events = std::move(events[static_cast<size_t>(w)]);
  }
  return records;
}

absl::StatusOr<std::string> PredictedTrace(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, PredictedRecords(plan, speed));
  return ChromeTrace(records,
                     {.microseconds_per_unit = 1e-3,
                      .note = absl::StrFormat("predicted, the first %d iterations: no clock ran",
                                              std::min(plan.iterations, kPredictedIterations))});
}

}  // namespace ringzero
