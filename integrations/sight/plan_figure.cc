// Panels of stacked areas under the grid of sharding/render.h; events as records.
#include "integrations/sight/plan_figure.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "sharding/block_table.h"
#include "sharding/predicted_events.h"
#include "sharding/render.h"

namespace ringzero {
namespace {

constexpr double kWidth = 960, kLeft = 84, kRight = 16;  // as the grid's
constexpr double kPanel = 190, kPlot = 110;              // heights
constexpr int kBins = 240;
constexpr double kColumn = (kWidth - kLeft - kRight) / kBins;
constexpr int kSimulated = 6;  // iterations; the shown ones begin after kBefore
constexpr int kBefore = 3;
constexpr std::array<const char*, 10> kColours = {"#2f6fb2", "#e08a2e", "#3a9a5f", "#c0504d",
                                                  "#8064a2", "#4bacc6", "#9c8a3c", "#d77fb3",
                                                  "#7f7f7f", "#a0c04c"};

using Bins = std::array<double, kBins>;

struct Series {
  std::string name;
  Bins values = {};
};

std::string NumberText(double value) { return absl::StrFormat("%.4g", value); }

struct Panel {
  std::string title;
  std::string (*number)(double) = NumberText;
  std::vector<Series> series;
};

// What is shown of the simulated run, cut into bins.
struct Window {
  int64_t begin = 0, end = 1;
  double bin_ticks() const { return static_cast<double>(end - begin) / kBins; }
  // -1: before the window; kBins: behind it.
  int Bin(int64_t tick) const {
    if (tick < begin || tick >= end) return tick < begin ? -1 : kBins;
    return std::min(kBins - 1, static_cast<int>(static_cast<double>(tick - begin) / bin_ticks()));
  }
};

// From worker 0's first forward in the first shown iteration to its first after the last shown.
Window WindowOf(const Simulation& run) {
  Window window;
  for (const ComputedOp& computed : run.computed) {
    const Op& op = computed.op;
    const bool first = computed.worker == 0 && op.kind == OpKind::kForward && op.stage.value == 0 &&
                       op.lap.value == 0;
    if (first && op.iteration.value == kBefore) window.begin = computed.start_tick;
    if (first && op.iteration.value == kBefore + kFigureIterations)
      window.end = computed.start_tick;
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
      if (bin < 0 || bin == kBins || bytes == 0) continue;
      Series& series = channels[event.op.channel];
      series.name = ToString(event.op.channel);
      series.values[static_cast<size_t>(bin)] += bytes / (1e-9 * window.bin_ticks());
    }
  }
  Panel panel{.title = "sent, bytes per second, by channel", .number = SizeText};
  for (auto& [channel, series] : channels) panel.series.push_back(std::move(series));
  return panel;
}

// The most that all workers together hold, in each bin.
Series HeldBy(const Simulation& run, const Window& window, const char* name, int64_t Held::*what) {
  Series series{.name = name};
  std::map<int, int64_t> workers;
  int64_t held = 0;
  int reached = 0;  // bins before this one are done
  const auto raise = [&](int bin) {
    double& most = series.values[static_cast<size_t>(bin)];
    most = std::max(most, static_cast<double>(held));
  };
  for (const Held& sample : run.held) {
    const int bin = window.Bin(sample.tick);
    while (reached < bin) raise(reached++);
    if (bin == kBins) break;
    held += sample.*what - std::exchange(workers[sample.worker], sample.*what);
    if (bin >= 0) raise(bin);
  }
  return series;
}

std::string TextAt(double x, double y, const char* style, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, text);
}

// The area below a curve that has one step per bin.
std::string Area(const Bins& tops, double bottom, const char* colour) {
  std::string path = absl::StrFormat("<path d=\"M%.1f %.1f", kLeft, bottom);
  double last = bottom;
  for (size_t b = 0; b < kBins; ++b) {
    if (tops[b] == last) continue;
    absl::StrAppendFormat(&path, "H%.1fV%.1f", kLeft + kColumn * static_cast<double>(b), tops[b]);
    last = tops[b];
  }
  return absl::StrFormat("%sH%.1fV%.1fz\" fill=\"%s\"/>\n", path, kWidth - kRight, bottom, colour);
}

// Stacked steps, their legend, and the axis of values. `y`: of the panel's top.
std::string Draw(const Panel& panel, double y) {
  Bins sums = {};
  for (const Series& series : panel.series) {
    for (size_t b = 0; b < kBins; ++b) sums[b] += series.values[b];
  }
  const double most = *std::max_element(sums.begin(), sums.end());
  const double bottom = y + 44 + kPlot, scale = most > 0 ? kPlot / most : 0;
  std::string svg = TextAt(16, y + 16, R"(font-size="13" font-weight="600")", panel.title);
  for (const double share : {0.0, 0.5, 1.0}) {
    const double line = bottom - share * kPlot;
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#d5dce5\" fill=\"none\"/>\n",
                          kLeft, line, kWidth - kRight);
    svg += TextAt(kLeft - 6, line + 4, R"(font-size="11" text-anchor="end")",
                  panel.number(share * most));
  }
  // From the uppermost series down: each area covers the lower part of the area before.
  for (size_t i = panel.series.size(); i-- > 0;) {
    Bins tops = {};  // as pixels
    for (size_t b = 0; b < kBins; ++b) {
      tops[b] = bottom - scale * sums[b];
      sums[b] -= panel.series[i].values[b];
    }
    svg += Area(tops, bottom, kColours[i % kColours.size()]);
  }
  double legend = kLeft;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const std::string& name = panel.series[i].name;
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n",
                          legend, y + 25, kColours[i % kColours.size()]);
    svg += TextAt(legend + 16, y + 35, R"(font-size="12")", name);
    legend += 40 + 6.6 * static_cast<double>(name.size());
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
  RZ_ASSIGN_OR_RETURN(const Panel traffic, Traffic(simulated, speed, window));
  std::vector<Panel> panels = {
      traffic,
      {.title = "held by all workers together, each in memory of its own",
       .number = SizeText,
       .series = {HeldBy(run, window, "versions", &Held::versions_bytes),
                  HeldBy(run, window, "copies", &Held::copies_bytes),
                  HeldBy(run, window, "sums", &Held::sums_bytes)}},
      {.title = "activations of all workers together, in micro-batches",
       .series = {HeldBy(run, window, "activations", &Held::activations)}}};
  for (double& value : panels.back().series[0].values) value /= plan.stage_count();
  std::string body = RenderSvg(plan, std::min(kFigureIterations, plan.iterations));
  double y = HeightOf(body);
  for (const Panel& panel : panels) {
    body += Draw(panel, y);
    y += kPanel;
  }
  body +=
      TextAt(kWidth - kRight, y - 14, R"(font-size="11" text-anchor="end")",
             absl::StrFormat("iterations %d and %d, simulated: %.4g ms in all", kBefore,
                             kBefore + 1, 1e-6 * static_cast<double>(window.end - window.begin)));
  return absl::StrFormat(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %1$.0f %2$.0f" width="%1$.0f" )"
      R"(height="%2$.0f" font-family="system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, )"
      "Arial, sans-serif\" fill=\"#1f2933\">\n<rect width=\"%1$.0f\" height=\"%2$.0f\" rx=\"8\" "
      "fill=\"#fff\"/>\n%3$s</svg>\n",
      kWidth, y, body);
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
  return ChromeTrace(records, absl::StrFormat("predicted, the first %d iterations: no clock ran",
                                              std::min(plan.iterations, kPredictedIterations)));
}

}  // namespace ringzero
