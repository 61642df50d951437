// Reads run.json, config.json, metrics.jsonl and flight/, and writes them into the page.
#include "integrations/sight/report.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/plan_figure.h"
#include "sharding/memory_forecast.h"
#include "zero/flight_clock.h"

namespace ringzero {

extern const char kReportPage[];  // report_page.html, by CMake

namespace {

using Json = nlohmann::json;

constexpr int kShownIterations = 2;
constexpr absl::string_view kPlaceOfRuns = "THE RUNS";

// The member `key`, which must be of the kind that `is` tells.
absl::StatusOr<Json> Member(const Json& json, const char* key, bool (Json::*is)() const noexcept,
                            const char* kind) {
  const auto found = json.find(key);
  if (found != json.end() && ((*found).*is)()) return *found;
  return InvalidArgument("wanted ", kind, " as \"", key, "\"");
}
absl::StatusOr<int64_t> Integer(const Json& json, const char* key) {
  RZ_ASSIGN_OR_RETURN(const Json found,
                      Member(json, key, &Json::is_number_integer, "a whole number"));
  return found.get<int64_t>();
}

absl::Status ReadLine(absl::string_view text, RunFolder& run) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RZ_ASSIGN_OR_RETURN(const int64_t iteration, Integer(line, "iteration"));
  RZ_ASSIGN_OR_RETURN(const Json scalars, Member(line, "scalars", &Json::is_object, "an object"));
  for (const auto& [name, value] : scalars.items()) {
    if (value.is_number()) run.scalars[name].emplace_back(iteration, value.get<double>());
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

}  // namespace

absl::Status ParseRun(const std::string& text, RunFolder& run) {
  run.about = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!run.about.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RZ_ASSIGN_OR_RETURN(const int64_t version, Integer(run.about, "ringzero_run"));
  if (version != 1) {
    return InvalidArgument("wanted ringzero_run 1, found ", version);
  }
  RZ_ASSIGN_OR_RETURN(const Json plan, Member(run.about, "plan", &Json::is_string, "a text"));
  RZ_ASSIGN_OR_RETURN(run.plan, ParsePlan(plan.get<std::string>()));
  RZ_RETURN_IF_ERROR(CheckPlan(run.plan));
  RZ_RETURN_IF_ERROR(Integer(run.about, "parameters").status());
  const Json forecast = run.about.value("forecast", Json());
  for (const MemoryCategory& category : MemoryCategories()) {
    if (forecast.is_object()) RZ_RETURN_IF_ERROR(Integer(forecast, category.name).status());
  }
  return absl::OkStatus();
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
  return absl::StrReplaceAll(kReportPage, {{kPlaceOfRuns, json}});
}

}  // namespace ringzero
