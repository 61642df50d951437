// The page: facts, curves, the schedule measured and predicted, time, traffic, memory.
#include "integrations/sight/report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integrations/sight/schedule_chart.h"
#include "integrations/sight/svg_chart.h"
#include "sharding/predicted_events.h"

namespace ringzero {
namespace {

constexpr int kShownIterations = 2;
constexpr size_t kColumns = 160;  // of a stacked chart; more iterations are averaged
constexpr char kStyle[] = R"(
body{font:14px/1.45 system-ui,sans-serif;color:#222;margin:24px auto;max-width:1220px;padding:0 16px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:26px 0 6px;border-bottom:1px solid #ddd}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(135px,1fr));gap:8px;margin:12px 0}
.facts div{background:#f4f6f8;border-radius:6px;padding:7px 10px}
.facts b{display:block;font-size:17px}.facts span{color:#666;font-size:12px}
.two{display:grid;grid-template-columns:repeat(auto-fill,minmax(480px,1fr));gap:8px 24px}
figure{margin:6px 0}figcaption{font-weight:600}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:#444}svg text.op{font-size:10px;fill:#fff;text-anchor:middle}
svg text.label{fill:#777}.grid{stroke:#e4e4e4;stroke-width:1}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:#444}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.none,.note{color:#777;font-size:12px}
)";

std::string Fact(const std::string& value, const std::string& name) {
  return absl::StrCat("<div><b>", EscapeXml(value), "</b><span>", EscapeXml(name), "</span></div>");
}

double Last(const std::vector<std::pair<double, double>>& values) {
  return values.empty() ? 0 : values.back().second;
}

// Without the first tenth, in which a run warms up.
double Mean(const std::vector<std::pair<double, double>>& values) {
  const size_t from = values.size() / 10;
  double sum = 0;
  for (size_t i = from; i < values.size(); ++i) sum += values[i].second;
  return values.empty() ? 0 : sum / static_cast<double>(values.size() - from);
}

std::string Facts(const RunFolder& run) {
  const Plan& plan = run.plan;
  std::string html = "<div class=\"facts\">";
  const auto& losses = run.Values("Train/Samples/train_loss");
  const auto& evaluations = run.Values("Train/Samples/eval_loss");
  html += Fact(NumberText(static_cast<double>(run.parameters)), "parameters");
  html += Fact(absl::StrCat(plan.workers, " workers"), absl::StrCat(plan.stage_count(), " stages"));
  html += Fact(ToString(plan.rule), absl::StrFormat("%.0f %% stale", 100 * run.stale_share));
  html += Fact(absl::StrCat(losses.size(), " of ", plan.iterations), "iterations");
  html += Fact(absl::StrFormat("%.4f", Last(losses)), "last training loss");
  if (!evaluations.empty())
    html += Fact(absl::StrFormat("%.4f", Last(evaluations)), "held-out loss");
  html += Fact(absl::StrFormat("%.4g ms", Mean(run.Values("Ring/Samples/iteration_ms"))),
               "an iteration");
  for (const char* const name : {"tokens_per_second", "samples_per_second"}) {
    const auto& rate = run.Values(absl::StrCat("Ring/Samples/", name));
    if (!rate.empty()) html += Fact(NumberText(Mean(rate)), name);
  }
  const auto& pss = run.Values("Ring/Samples/pss_mib");
  if (!pss.empty()) html += Fact(absl::StrFormat("%.0f", Last(pss)), "pss_mib of all workers");
  const auto& flops = run.Values("Ring/Samples/model_flops_per_second");
  if (!flops.empty()) html += Fact(NumberText(Mean(flops)), "model FLOP/s");
  const auto& share = run.Values("Ring/Samples/mfu");
  if (!share.empty())
    html += Fact(absl::StrFormat("%.0f %%", 100 * Mean(share)), "mfu: of the cores' peak");
  return html + "</div>\n";
}

// At most kColumns points, each the mean of those it stands for.
std::vector<std::pair<double, double>> Thinned(
    const std::vector<std::pair<double, double>>& values) {
  const size_t each = (values.size() + kColumns - 1) / std::max<size_t>(kColumns, 1);
  if (each <= 1) return values;
  std::vector<std::pair<double, double>> thin;
  for (size_t i = 0; i < values.size(); i += each) {
    double sum = 0;
    const size_t end = std::min(values.size(), i + each);
    for (size_t k = i; k < end; ++k) sum += values[k].second;
    thin.emplace_back(values[i].first, sum / static_cast<double>(end - i));
  }
  return thin;
}

std::string Curves(const RunFolder& run) {
  Chart loss{.title = "Loss", .x_label = "iteration"};
  loss.series.push_back({"training", run.Values("Train/Samples/train_loss")});
  if (!run.Values("Train/Samples/eval_loss").empty()) {
    loss.series.push_back(
        {"held-out", run.Values("Train/Samples/eval_loss"), ChartSeries::Mark::kDots});
  }
  const bool tokens = !run.Values("Ring/Samples/tokens_per_second").empty();
  Chart rate{.title = tokens ? "Tokens a second" : "Samples a second", .x_label = "iteration"};
  // The first iteration's time has the start in it.
  std::vector<std::pair<double, double>> rates =
      run.Values(tokens ? "Ring/Samples/tokens_per_second" : "Ring/Samples/samples_per_second");
  if (rates.size() > 1) rates.erase(rates.begin());
  rate.series.push_back({tokens ? "tokens/s" : "samples/s", Thinned(rates)});
  Chart learning{.title = "Learning rate (lr)", .x_label = "iteration"};
  learning.series.push_back({"lr", run.Values("Train/Samples/lr")});
  Chart norm{.title = "Gradient norm (gradient_norm)", .x_label = "iteration"};
  norm.series.push_back({"gradient_norm", Thinned(run.Values("Ring/Samples/gradient_norm"))});
  return absl::StrCat("<h2>Curves</h2><div class=\"two\">", LineChart(loss), LineChart(rate),
                      LineChart(learning), LineChart(norm), "</div>\n");
}

struct Named {
  const char* scalar;
  const char* name;
  const char* colour = "";
};

std::string Stack(const RunFolder& run, Chart chart, const std::vector<Named>& names) {
  size_t count = run.Values(names[0].scalar).size();
  for (const Named& each : names) count = std::min(count, run.Values(each.scalar).size());
  for (const Named& each : names) {
    std::vector<std::pair<double, double>> values = run.Values(each.scalar);
    values.resize(count);
    if (count > 1) values.erase(values.begin());
    chart.series.push_back({.name = each.name, .points = Thinned(values), .colour = each.colour});
  }
  return StackedChart(chart);
}

std::string TimeAndTraffic(const RunFolder& run) {
  const std::string time = Stack(
      run, {.title = "Where the mean worker's time goes", .x_label = "iteration", .unit = "ms"},
      {{"Train/Samples/elapsed_time_ms_forward", "forward", "#4a84c4"},
       {"Train/Samples/elapsed_time_ms_backward", "backward", "#2f5d50"},
       {"Ring/Samples/wait_ms_parameters", "waits for parameters", "#e9b44c"},
       {"Ring/Samples/wait_ms_gradient_sums", "for gradient sums", "#d9834e"},
       {"Ring/Samples/wait_ms_update", "for its own update", "#b0413e"},
       {"Ring/Samples/wait_ms_other", "for something else", "#a9a9a9"}});
  const std::string traffic =
      Stack(run, {.title = "Sent by the whole ring", .x_label = "iteration", .unit = "bytes"},
            {{"Ring/Samples/bytes_forward", "forward copies"},
             {"Ring/Samples/bytes_backward", "backward copies"},
             {"Ring/Samples/bytes_inject", "injected"},
             {"Ring/Samples/bytes_sum", "sums"},
             {"Ring/Samples/bytes_retire", "retired sums"},
             {"Ring/Samples/bytes_finished", "finished sums"},
             {"Ring/Samples/bytes_other", "all else"}});
  return absl::StrCat("<h2>Time and traffic</h2><div class=\"two\">", time, traffic, "</div>\n");
}

std::string Memory(const RunFolder& run) {
  BarChart chart{.title = "Model states and buffers, whole ring",
                 .groups = {"forecast", "allocated"},
                 .bytes = true};
  for (const MemoryCategory& category : MemoryCategories()) {
    const auto& values = run.Values(absl::StrCat("Ring/Samples/memory_", category.name));
    chart.bars.push_back(
        {category.name, {static_cast<double>(run.forecast.*category.bytes), Last(values)}});
  }
  return absl::StrCat("<h2>Memory</h2><div class=\"two\">", HorizontalBars(chart), "</div>\n");
}

// The same iterations as Simulate sees them with the measured time of each stage: nanoseconds.
absl::StatusOr<std::vector<FlightRecord>> Predict(const RunFolder& run) {
  Plan plan = run.plan;
  plan.iterations = std::min(plan.iterations, 8);
  plan.evaluation = {};
  plan.collection = {};
  const auto [add, update] = MeasuredAddAndUpdate(run.flights);
  absl::StatusOr<std::vector<std::vector<Event>>> events =
      PredictEvents(plan, {.stage_ticks = MeasuredTicks(run.flights, plan.stage_count()),
                           .add_ticks = add,
                           .update_ticks = update});
  if (!events.ok()) return events.status();
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    records.push_back({.worker = WorkerId(w), .workers = plan.workers, .clock = "simulation"});
    records.back().events = std::move((*events)[static_cast<size_t>(w)]);
  }
  return records;
}

std::string ScheduleLegend() {
  constexpr std::pair<const char*, const char*> kColours[] = {{"#4a84c4", "forward"},
                                                              {"#2f5d50", "backward"},
                                                              {"#e9b44c", "waits: parameters"},
                                                              {"#d9834e", "waits: gradient sums"},
                                                              {"#b0413e", "waits: update"},
                                                              {"#a9a9a9", "waits: other"},
                                                              {"#8064a2", "update"},
                                                              {"#7fae6a", "add"}};
  std::string html = "<div class=\"legend\">";
  for (const auto& [colour, name] : kColours) {
    absl::StrAppend(&html, "<span><i style=\"background:", colour, "\"></i>", name, "</span>");
  }
  return html + "<span>white: outside of the engine (data, loss), or not yet begun</span></div>";
}

std::string Schedule(const RunFolder& run) {
  std::string html = "<h2>Schedule</h2>\n";
  const std::optional<std::pair<Iteration, Iteration>> shown =
      LastWhole(run.flights, kShownIterations);
  if (!shown.has_value() || static_cast<int>(run.flights.size()) != run.plan.workers) {
    return html + "<p class=\"none\">no flight records of whole iterations of all workers</p>\n";
  }
  const auto [from, to] = TimesOf(run.flights, *shown);
  const absl::StatusOr<std::vector<FlightRecord>> predicted = Predict(run);
  std::string note;
  std::pair<int64_t, int64_t> times = {0, 0};
  if (predicted.ok()) {
    const int last = std::min(run.plan.iterations, 8);
    const int count = shown->second.value - shown->first.value;
    times = TimesOf(*predicted, {Iteration(std::max(0, last - count)), Iteration(last)});
    note = absl::StrFormat(
        "predicted: the simulation of the same plan with the measured mean time of each stage, "
        "cores without end and messages that take no time: %.3g ms against %.3g ms",
        static_cast<double>(times.second - times.first) * 1e-6,
        static_cast<double>(to - from) * 1e-6);
  } else {
    note = absl::StrCat("no prediction: ", predicted.status().message());
  }
  const int64_t width = std::max(to - from, times.second - times.first);
  absl::StrAppendFormat(&html, "<figure><figcaption>measured, iterations %d to %d</figcaption>%s",
                        shown->first.value, shown->second.value - 1,
                        ScheduleChart(run.flights, {.from = from, .to = to, .width = width}));
  if (predicted.ok()) {
    absl::StrAppend(
        &html, "<figcaption>predicted</figcaption>",
        ScheduleChart(*predicted, {.from = times.first, .to = times.second, .width = width}));
  }
  absl::StrAppend(&html, ScheduleLegend(), "</figure><p class=\"note\">", EscapeXml(note),
                  "</p>\n");
  return html;
}

std::string NotMeasured(const RunFolder& run) {
  if (run.not_measured.empty()) return "";
  std::string html = "<h2>Not measured</h2><ul class=\"note\">";
  for (const std::string& each : run.not_measured) {
    absl::StrAppend(&html, "<li>", EscapeXml(each), "</li>");
  }
  return html + "</ul>\n";
}

}  // namespace

std::string Report(const RunFolder& run, const std::string& title) {
  return absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
                      EscapeXml(title), "</title><style>", kStyle, "</style></head><body>\n<h1>",
                      EscapeXml(title), "</h1>\n", Facts(run), Curves(run), Schedule(run),
                      TimeAndTraffic(run), Memory(run), NotMeasured(run), "</body></html>\n");
}

}  // namespace ringzero
