// data/rules.json, which is built in, and files like it: a list of StudiedRules.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/config/config.h"
#include "zero/config/json_value.h"

namespace ringzero {

extern const char kStudiedRules[];  // data/rules.json

// The rule is a text there.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StudiedRule, family, optimizer, strict, workers, laps, batch,
                                   warmup_updates, predict, updates, least, most, seeds, command)

namespace {

absl::StatusOr<StudiedRule> ReadRow(const nlohmann::json& row) {
  if (!row.is_object()) return InvalidArgument("wanted an object, found ", row.dump());
  nlohmann::json sample = StudiedRule();
  sample["rule"] = "dp";
  RZ_RETURN_IF_ERROR(CheckMembers(sample, row));
  auto studied = row.get<StudiedRule>();
  RZ_ASSIGN_OR_RETURN(studied.rule, Annotate(ParseRule(row["rule"].get<std::string>()), "rule"));
  return studied;
}

absl::StatusOr<std::vector<StudiedRule>> ReadRows(const std::string& text) {
  const auto rows = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array()) return InvalidArgument("wanted JSON, a list of rows as in data/rules.json");
  std::vector<StudiedRule> studied;
  for (const nlohmann::json& row : rows) {
    const std::string where = absl::StrCat("row ", studied.size() + 1);
    RZ_ASSIGN_OR_RETURN(studied.emplace_back(), Annotate(ReadRow(row), where));
  }
  return studied;
}

}  // namespace

absl::StatusOr<std::vector<StudiedRule>> ReadStudiedRules(const std::string& file) {
  absl::StatusOr<std::vector<StudiedRule>> studied = ReadRows(kStudiedRules);
  RZ_CHECK(studied.ok(), std::string(studied.status().message()));
  if (file.empty()) return studied;
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  RZ_ASSIGN_OR_RETURN(const std::vector<StudiedRule> more, Annotate(ReadRows(text), file));
  studied->insert(studied->end(), more.begin(), more.end());
  return studied;
}

}  // namespace ringzero
