// Reads a run's folder and writes it into the page. The figure: panels of stacked areas under the
// grid of sharding/study/render.h.
#include "integrations/sight/report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "sharding/memory/block_table.h"
#include "sharding/study/render.h"
#include "zero/config/json_value.h"

namespace ringzero {

extern const char kReportPage[];  // report_page.html, by CMake

namespace {

using Json = nlohmann::json;

constexpr int kShownIterations = 2;  // of a schedule

absl::Status ReadLine(absl::string_view text, RunFolder& run) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return absl::InvalidArgumentError("not a JSON object");
  const Json iteration = line.value("iteration", Json()), scalars = line.value("scalars", Json());
  if (!iteration.is_number_integer() || !scalars.is_object()) {
    return InvalidArgument("wanted a whole number as \"iteration\", an object as \"scalars\"");
  }
  for (const auto& [name, value] : scalars.items()) {
    if (value.is_number()) run.scalars[name].emplace_back(iteration, value);
  }
  return absl::OkStatus();
}

// All that the records have, and between which times the iterations lie that are shown at first.
Json ScheduleJson(std::span<const FlightRecord> records,
                  const std::pair<Iteration, Iteration>& shown) {
  const auto [from, to] = TimesOf(records, shown);
  Json workers = Json::array();
  for (const FlightRecord& record : records) {
    const int64_t offset = OffsetTo(records[0], record).value_or(0);
    Json slices = Json::array();
    for (const Slice& slice : SlicesOf(record.events)) {
      if (slice.track == Track::kCopiesIn || slice.track == Track::kCopiesOut) continue;
      const bool waits = slice.track == Track::kWaits;
      slices.push_back({waits ? ToString(CauseOf(slice.op)) : "", slice.begin + offset - from,
                        slice.end - slice.begin, ToString(slice.op)});
    }
    workers.push_back({record.worker.value, std::move(slices)});
  }
  return {{"length", to - from}, {"workers", std::move(workers)}};
}

// The same iterations as Simulate sees them with the measured time of each stage.
Json PredictedJson(const RunFolder& run, int iterations) {
  Plan plan = run.plan;
  plan.evaluation = {};
  plan.collection = {};
  const absl::StatusOr<std::vector<FlightRecord>> records =
      PredictedRecords(plan, MeasuredSpeed(run.flights, plan.stage_count()));
  if (!records.ok()) return {{"none", std::string(records.status().message())}};
  const int last = std::min(plan.iterations, kPredictedIterations);
  return ScheduleJson(*records, {Iteration(std::max(0, last - iterations)), Iteration(last)});
}

Json ScheduleOf(const RunFolder& run) {
  const std::optional<std::pair<Iteration, Iteration>> shown =
      LastWhole(run.flights, kShownIterations);
  if (!shown.has_value() || static_cast<int>(run.flights.size()) != run.plan.workers) {
    return {{"none", "no flight records of whole iterations of all workers"}};
  }
  const auto [first, end] = *shown;
  return {{"first", first.value},
          {"last", end.value - 1},
          {"measured", ScheduleJson(run.flights, *shown)},
          {"predicted", PredictedJson(run, end.value - first.value)}};
}

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
    if (first && op.iteration.value == kBefore + kShownIterations) window.end = computed.start_tick;
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

// The activations of all workers together, in micro-batches: the most in each bin.
Series Activations(const Plan& plan, const Simulation& run, const Window& window) {
  Series series{.name = "activations"};
  std::vector<std::pair<int64_t, int>> changes;  // by how many stages', and when
  for (const ComputedOp& computed : run.computed) {
    const int more = ActivationsOf(plan, computed.op);
    if (more != 0) changes.push_back({computed.end_tick, more});
  }
  std::sort(changes.begin(), changes.end());
  int held = 0, reached = 0;  // bins before `reached` are done
  const auto raise = [&](int bin) {
    double& most = series.values[static_cast<size_t>(bin)];
    most = std::max(most, static_cast<double>(held) / plan.stage_count());
  };
  for (const auto& [tick, more] : changes) {
    const int bin = window.Bin(tick);
    while (reached < bin) raise(reached++);
    if (bin == kBins) break;
    held += more;
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

}  // namespace

absl::Status ParseRun(const std::string& text, RunFolder& run) {
  run.about = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!run.about.is_object()) return absl::InvalidArgumentError("not a JSON object");
  const Json version = run.about.value("ringzero_run", Json());
  if (version != 1) return InvalidArgument("wanted ringzero_run 1, found ", version.dump());
  Json sample = {{"plan", ""}, {"parameters", 0}};
  if (run.about.value("forecast", Json()).is_object()) {
    for (const MemoryCategory& category : MemoryCategories()) sample["forecast"][category.name] = 0;
  }
  RZ_RETURN_IF_ERROR(CheckMembers(sample, run.about));
  RZ_ASSIGN_OR_RETURN(run.plan, ParsePlan(run.about["plan"].get<std::string>()));
  return CheckPlan(run.plan);
}

absl::Status ParseMetrics(const std::string& text, RunFolder& run) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // the last line is empty, or cut
  for (size_t i = 0; i < lines.size(); ++i) {
    RZ_RETURN_IF_ERROR(Annotate(ReadLine(lines[i], run), absl::StrCat("line ", i + 1)));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunFolder> ReadRunFolder(const std::string& folder) {
  RunFolder run{.name = folder, .config = Json::object()};
  const std::string head = absl::StrCat(folder, "/run.json");
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(head));
  RZ_RETURN_IF_ERROR(Annotate(ParseRun(text, run), head));
  const std::string lines = absl::StrCat(folder, "/metrics.jsonl");
  RZ_ASSIGN_OR_RETURN(const std::string metrics, ReadWholeFile(lines));
  RZ_RETURN_IF_ERROR(Annotate(ParseMetrics(metrics, run), lines));
  // config.json has its values' origins as comments. The page can do without config.json.
  const absl::StatusOr<std::string> config = ReadWholeFile(absl::StrCat(folder, "/config.json"));
  const Json values = Json::parse(config.value_or(""), nullptr, /*allow_exceptions=*/false,
                                  /*ignore_comments=*/true);
  if (values.is_object()) run.config = values.flatten();
  absl::StatusOr<std::vector<FlightRecord>> flights =
      ReadFlightFolder(absl::StrCat(folder, "/flight"));
  if (flights.ok()) {
    run.flights = *std::move(flights);
  } else if (!absl::IsNotFound(flights.status())) {
    return flights.status();
  }
  return run;
}

std::string Report(std::span<const RunFolder> runs) {
  Json all = Json::array();
  for (const RunFolder& run : runs) {
    all.push_back({{"name", run.name},
                   {"about", run.about},
                   {"config", run.config},
                   {"workers", run.plan.workers},
                   {"stages", run.plan.stage_count()},
                   {"rule", ToString(run.plan.rule)},
                   {"iterations", run.plan.iterations},
                   {"scalars", run.scalars},
                   {"schedule", ScheduleOf(run)}});
  }
  // So that the JSON does not end the script element that it stands in.
  const std::string json = absl::StrReplaceAll(
      all.dump(-1, ' ', false, Json::error_handler_t::replace), {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kReportPage, {{"THE RUNS", json}});
}

absl::StatusOr<std::string> PlanFigure(const Plan& plan, const SimulationOptions& speed) {
  Plan simulated = plan;
  simulated.iterations = kSimulated;
  simulated.evaluation = {};
  simulated.collection = {};
  RZ_ASSIGN_OR_RETURN(const Simulation run, Simulate(simulated, speed));
  const Window window = WindowOf(run);
  RZ_ASSIGN_OR_RETURN(const Panel traffic, Traffic(simulated, speed, window));
  const Panel activations{.title = "activations of all workers together, in micro-batches",
                          .series = {Activations(simulated, run, window)}};
  std::string body = RenderSvg(plan, std::min(kShownIterations, plan.iterations));
  double y = std::stod(body.substr(body.find(" height=\"") + 9));  // of the grid, by its own word
  for (const Panel& panel : {traffic, activations}) {
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

}  // namespace ringzero
