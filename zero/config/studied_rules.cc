// data/rules.json, which is built in, and a file like it: JSON, a list of rows. The members of a row
// are those of StudiedRule.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/config/config.h"
#include "zero/config/keys.h"

namespace ringzero {

extern const char kStudiedRules[];  // data/rules.json

// The rule is a text there.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StudiedRule, family, optimizer, strict, workers, laps, batch,
                                   warmup_updates, predict, updates, least, most, seeds, command)

namespace {

using Row = nlohmann::json;

// Of every member the kind, which a row must have, too.
Row SampleRow() {
  Row sample = StudiedRule();
  sample["rule"] = ToString(Rule::kDp);
  return sample;
}

absl::Status CheckMember(const Row& sample, const Row& found) {
  const bool whole = sample.is_number_integer(), number = sample.is_number();
  const bool fits = whole    ? found.is_number_integer() && found >= 0 && found <= 1e9
                    : number ? found.is_number() && found > 0
                             : found.type() == sample.type();
  if (fits) return absl::OkStatus();
  return InvalidArgument("wanted ",
                         whole                 ? "a whole number from 0 to 1000000000"
                         : number              ? "a number above 0"
                         : sample.is_boolean() ? "true or false"
                                               : "a text",
                         ", found ", found.is_null() ? "nothing" : found.dump());
}

absl::StatusOr<StudiedRule> ReadRow(const Row& row) {
  if (!row.is_object()) return InvalidArgument("wanted an object, found ", row.dump());
  const Row sample = SampleRow();
  std::string names;
  for (const auto& [name, value] : sample.items()) {
    absl::StrAppend(&names, names.empty() ? "" : "|", name);
    RZ_RETURN_IF_ERROR(Annotate(CheckMember(value, row.value(name, Row())), name));
  }
  for (const auto& [name, value] : row.items()) {
    if (sample.contains(name)) continue;
    return InvalidArgument(name, ": unknown; the nearest known one is ",
                           NearestChoice(names, name));
  }
  auto studied = row.get<StudiedRule>();
  absl::StatusOr<Rule> rule = ParseRule(row["rule"].get<std::string>());
  if (!rule.ok()) return Annotate(rule.status(), "rule");
  studied.rule = *rule;
  return studied;
}

absl::StatusOr<std::vector<StudiedRule>> ReadRows(const std::string& text) {
  const Row rows = Row::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array()) return InvalidArgument("wanted JSON, a list of rows as in data/rules.json");
  std::vector<StudiedRule> studied;
  for (const Row& row : rows) {
    absl::StatusOr<StudiedRule> read = ReadRow(row);
    if (!read.ok()) return Annotate(read.status(), absl::StrCat("row ", studied.size() + 1));
    studied.push_back(*std::move(read));
  }
  return studied;
}

}  // namespace

absl::StatusOr<std::vector<StudiedRule>> ReadStudiedRules(const std::string& file) {
  absl::StatusOr<std::vector<StudiedRule>> studied = ReadRows(kStudiedRules);
  RZ_CHECK(studied.ok(), std::string(studied.status().message()));
  if (file.empty()) return studied;
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  absl::StatusOr<std::vector<StudiedRule>> more = ReadRows(text);
  if (!more.ok()) return Annotate(more.status(), file);
  studied->insert(studied->end(), more->begin(), more->end());
  return studied;
}

}  // namespace ringzero
