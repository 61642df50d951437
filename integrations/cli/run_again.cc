// Reads and writes a run's folder; compares two runs by what makes bits.
#include "integrations/cli/run_again.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"

namespace ringzero {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string RecordedProvenance(const std::string& folder) {
  return absl::StrCat(folder, "/provenance.json");
}
std::string RecordedSummary(const std::string& folder) {
  return absl::StrCat(folder, "/summary.json");
}

// What may change a result, of a run's provenance.
OrderedJson WhatMakesBits(const std::string& provenance) {
  OrderedJson json = OrderedJson::parse(provenance);
  std::set<std::string> processors, instructions;
  for (const OrderedJson& place : json["places"]) {
    processors.insert(place["processor"].get<std::string>());
    instructions.insert(place["instructions"].get<std::string>());
  }
  return {{"processor", absl::StrJoin(processors, " and ")},
          {"instructions", absl::StrJoin(instructions, " and ")},
          {"versions", json["versions"]},
          {"environment", json["environment"]},
          {"init", json["init"]},
          {"configuration", json["configuration"]}};
}

// "processor: "A" there, "B" here", a line for each value that is not the same.
std::vector<std::string> DifferencesOf(const OrderedJson& there, const OrderedJson& here) {
  const OrderedJson before = there.flatten(), now = here.flatten();
  std::set<std::string> paths;
  for (const OrderedJson* const values : {&before, &now}) {
    for (const auto& item : values->items()) paths.insert(item.key());
  }
  const auto show = [](const OrderedJson& values, const std::string& path) {
    return values.contains(path) ? values[path].dump() : "nothing";
  };
  std::vector<std::string> lines;
  for (const std::string& path : paths) {
    const std::string was = show(before, path), is = show(now, path);
    if (was == is) continue;
    lines.push_back(absl::StrCat(path.substr(1), ": ", was, " there, ", is, " here"));
  }
  return lines;
}

absl::Status NotARunsFile(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": wanted what a run with --metrics writes there, found something else"));
}

bool IsProvenance(const OrderedJson& json) {
  if (!json.is_object()) return false;
  for (const char* const key : {"versions", "environment", "init", "configuration"}) {
    if (!json.contains(key)) return false;
  }
  const auto places = json.find("places");
  if (places == json.end() || !places->is_array()) return false;
  for (const OrderedJson& place : *places) {
    if (!place.is_object()) return false;
    for (const char* const key : {"processor", "instructions"}) {
      if (!place.contains(key) || !place[key].is_string()) return false;
    }
  }
  return json["init"].is_null() || json["init"].is_string();
}

}  // namespace

std::string RecordedConfig(const std::string& folder) {
  return absl::StrCat(folder, "/config.json");
}

absl::Status WriteRunRecord(const std::string& folder, const Provenance& provenance) {
  RZ_RETURN_IF_ERROR(WriteWholeFile(RecordedConfig(folder), provenance.configuration));
  const OrderedJson json = {{"provenance", OrderedJson::parse(ToJson(provenance))}};
  return WriteWholeFile(RecordedProvenance(folder), json.dump(2) + "\n");
}

absl::Status WriteRunSummary(const std::string& folder, const std::string& summary) {
  return WriteWholeFile(RecordedSummary(folder), summary);
}

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& folder) {
  std::string path = RecordedSummary(folder);
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (absl::IsNotFound(text.status())) {
    path = RecordedProvenance(folder);  // the run has not ended
    text = ReadWholeFile(path);
  }
  if (!text.ok()) return Annotate(text.status(), "--again");
  const OrderedJson json = OrderedJson::parse(*text, nullptr, /*allow_exceptions=*/false);
  const bool recorded = json.is_object() && json.contains("provenance");
  if (!recorded || !IsProvenance(json["provenance"])) return NotARunsFile(path);
  RunRecord record{.folder = folder,
                   .provenance = json["provenance"].dump(),
                   .init = "",
                   .parameters_sha256 = ""};
  const OrderedJson& init = json["provenance"]["init"];
  if (init.is_string()) record.init = init;
  const auto digest = json.find("parameters_sha256");
  if (digest != json.end() && digest->is_string()) record.parameters_sha256 = *digest;
  return record;
}

Comparison CompareRuns(const RunRecord& before, const std::string& provenance,
                       const std::string& parameters_sha256) {
  std::vector<std::string> differs =
      DifferencesOf(WhatMakesBits(before.provenance), WhatMakesBits(provenance));
  OrderedJson same = nullptr;
  Comparison comparison;
  std::string& text = comparison.text;
  if (before.parameters_sha256.empty() || parameters_sha256.empty()) {
    text = absl::StrCat("nothing to compare with ", before.folder, ": ",
                        parameters_sha256.empty() ? "this run" : "that run",
                        " has no parameters sha256\n");
  } else if (same = before.parameters_sha256 == parameters_sha256; same) {
    text = absl::StrCat("same result as that of ", before.folder, ": the parameters sha256\n");
  } else {
    text = absl::StrCat("another result than that of ", before.folder, ": there parameters sha256 ",
                        before.parameters_sha256, "\n");
    for (const std::string& line : differs) absl::StrAppend(&text, "  differs: ", line, "\n");
    if (differs.empty()) text += "  nothing else that was recorded differs\n";
  }
  comparison.json =
      OrderedJson(
          {{"folder", before.folder}, {"same_parameters", same}, {"differs", std::move(differs)}})
          .dump();
  return comparison;
}

}  // namespace ringzero
