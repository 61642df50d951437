// run.json, metrics.jsonl and flight/.
#include "integrations/sight/run_folder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Json = nlohmann::json;

absl::StatusOr<int64_t> Integer(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number_integer()) return found->get<int64_t>();
  return absl::InvalidArgumentError(absl::StrCat("wanted a whole number as \"", key, "\""));
}

}  // namespace

absl::Status ParseRun(const std::string& text, RunFolder& run) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RZ_ASSIGN_OR_RETURN(const int64_t version, Integer(json, "ringzero_run"));
  if (version != 1) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ringzero_run 1, found ", version));
  }
  const auto plan = json.find("plan");
  if (plan == json.end() || !plan->is_string()) {
    return absl::InvalidArgumentError("wanted a text as \"plan\"");
  }
  RZ_ASSIGN_OR_RETURN(run.plan, ParsePlan(plan->get<std::string>()));
  RZ_RETURN_IF_ERROR(CheckPlan(run.plan));
  RZ_ASSIGN_OR_RETURN(run.parameters, Integer(json, "parameters"));
  const auto stale = json.find("stale_share");
  if (stale != json.end() && stale->is_number()) run.stale_share = stale->get<double>();
  const auto forecast = json.find("forecast");
  if (forecast != json.end() && forecast->is_object()) {
    for (const MemoryCategory& category : MemoryCategories()) {
      RZ_ASSIGN_OR_RETURN(run.forecast.*category.bytes, Integer(*forecast, category.name));
    }
  }
  const auto missing = json.find("not_measured");
  if (missing != json.end() && missing->is_array()) {
    for (const Json& each : *missing) {
      if (each.is_string()) run.not_measured.push_back(each.get<std::string>());
    }
  }
  return absl::OkStatus();
}

namespace {

absl::Status ReadLine(const Json& line, RunFolder& run) {
  RZ_ASSIGN_OR_RETURN(const int64_t iteration, Integer(line, "iteration"));
  const auto scalars = line.find("scalars");
  if (scalars == line.end() || !scalars->is_object()) {
    return absl::InvalidArgumentError("wanted an object as \"scalars\"");
  }
  const double done = static_cast<double>(iteration);
  for (const auto& [name, value] : scalars->items()) {
    if (value.is_number()) run.scalars[name].emplace_back(done, value.get<double>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseMetrics(const std::string& text, RunFolder& run) {
  size_t at = 0;
  for (int number = 1; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // cut
    const Json line = Json::parse(text.begin() + static_cast<ptrdiff_t>(at),
                                  text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (!line.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": not a JSON object"));
    }
    RZ_RETURN_IF_ERROR(Annotate(ReadLine(line, run), absl::StrCat("line ", number)));
    at = end + 1;
  }
  return absl::OkStatus();
}

const std::vector<std::pair<double, double>>& RunFolder::Values(const std::string& name) const {
  static const std::vector<std::pair<double, double>> kNone;
  const auto found = scalars.find(name);
  return found == scalars.end() ? kNone : found->second;
}

absl::StatusOr<RunFolder> ReadRunFolder(const std::string& folder) {
  RunFolder run;
  const std::string head = absl::StrCat(folder, "/run.json");
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(head));
  RZ_RETURN_IF_ERROR(Annotate(ParseRun(text, run), head));
  const std::string lines = absl::StrCat(folder, "/metrics.jsonl");
  RZ_ASSIGN_OR_RETURN(const std::string metrics, ReadWholeFile(lines));
  RZ_RETURN_IF_ERROR(Annotate(ParseMetrics(metrics, run), lines));
  absl::StatusOr<std::vector<FlightRecord>> flights =
      ReadFlightFolder(absl::StrCat(folder, "/flight"));
  if (flights.ok()) {
    run.flights = *std::move(flights);
  } else if (!absl::IsNotFound(flights.status())) {
    return flights.status();
  }
  return run;
}

}  // namespace ringzero
