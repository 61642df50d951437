// From text to a checked configuration, and from that to one for a run.
#include "zero/config/config.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/config/fill.h"
#include "zero/config/json_value.h"
#include "zero/config/overrides.h"
#include "zero/config/rules.h"

namespace ringzero {
namespace {

absl::StatusOr<JsonValue> ReadSource(absl::string_view text, const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, source.file));
  if (!root.is_object()) return root;  // the file is to blame, not what is set in it
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.overrides, OverridesFrom::kCommandLine, root));
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.environment, OverridesFrom::kEnvironment, root));
  return root;
}

absl::Status FirstOf(absl::string_view line, size_t count) {
  const std::string more =
      count == 1 ? "" : absl::StrCat(" (and ", count - 1, " more: ringzero config lists them)");
  return absl::InvalidArgumentError(absl::StrCat(line, more));
}

bool Speaks(const Finding& finding) {
  return finding.kind == Finding::Kind::kNoEffect || finding.kind == Finding::Kind::kMinor ||
         finding.kind == Finding::Kind::kNote || finding.kind == Finding::Kind::kAuto;
}

// All rules, one key's and several keys'.
void CheckKeys(const JsonValue& root, const std::string& file, CheckedConfig& checked) {
  ResolvedKeys& keys = checked.config.keys;
  keys = ResolveKeys(root, file, checked.findings);
  if (!root.is_object()) return;
  ApplyRules(keys, checked.findings);
  ResolveBatch(keys, checked.findings);
  ResolveLength(keys, checked.findings);
  if (!keys.Has("evaluation.batch_size") && keys.Has("train_micro_batch_size_per_gpu") &&
      !keys.MustBeSet("train_micro_batch_size_per_gpu")) {
    keys.Set("evaluation.batch_size",
             JsonValue::Integer(keys.Integer("train_micro_batch_size_per_gpu")), Origin::kDerived);
  }
}

}  // namespace

Verdict CheckedConfig::verdict() const {
  using Kind = Finding::Kind;
  if (findings.First(Kind::kError) != nullptr) return Verdict::kReject;
  const bool no_batch =
      !config.keys.Has("train_batch_size") && !config.keys.Has("train_micro_batch_size_per_gpu");
  if (no_batch || findings.HasAuto()) return Verdict::kAcceptAuto;
  const bool warns = findings.Count(Kind::kNoEffect) + findings.Count(Kind::kOutside) > 0;
  return warns ? Verdict::kWarn : Verdict::kAccept;
}

absl::Status CheckedConfig::status() const {
  std::string lines;
  for (const Finding& finding : findings.all()) {
    if (finding.kind != Finding::Kind::kError) continue;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", finding.line);
  }
  return lines.empty() ? absl::OkStatus() : absl::InvalidArgumentError(lines);
}

CheckedConfig CheckConfig(absl::string_view text, const ConfigSource& source) {
  CheckedConfig checked;
  const auto fail = [&](const absl::Status& status) {
    checked.findings.all().push_back(
        {.kind = Finding::Kind::kError, .path = "", .line = std::string(status.message())});
  };
  const absl::StatusOr<JsonValue> root = ReadSource(text, source);
  if (!root.ok()) {
    fail(root.status());
    return checked;
  }
  CheckKeys(*root, source.file, checked);
  checked.findings.Sort();
  if (!root->is_object() || checked.findings.First(Finding::Kind::kError) != nullptr) {
    return checked;
  }
  for (const absl::Status& status : FillOurs(checked.config)) fail(status);
  return checked;
}

std::vector<std::string> FillForTraining(CheckedConfig& checked) {
  std::vector<std::string> refused;
  std::set<std::string> sections;
  for (const Finding& finding : checked.findings.all()) {
    if (!RefusedByTraining(finding.kind)) continue;
    refused.push_back(finding.line);
    sections.insert(finding.path.substr(0, finding.path.find('.')));
  }
  if (checked.findings.First(Finding::Kind::kError) != nullptr) return refused;
  for (const absl::Status& status : FillRun(checked.config, sections)) {
    refused.emplace_back(status.message());
  }
  return refused;
}

absl::StatusOr<Config> ParseConfig(absl::string_view text, const ConfigSource& source) {
  CheckedConfig checked = CheckConfig(text, source);
  const Findings& findings = checked.findings;
  if (const Finding* error = findings.First(Finding::Kind::kError); error != nullptr) {
    return FirstOf(error->line, static_cast<size_t>(findings.Count(Finding::Kind::kError)));
  }
  const std::vector<std::string> refused = FillForTraining(checked);
  if (!refused.empty()) return FirstOf(refused[0], refused.size());
  for (const Finding& finding : findings.all()) {
    if (Speaks(finding)) checked.config.notes.push_back(finding.line);
  }
  return std::move(checked.config);
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& file) {
  return ReadWholeFile(file, kMaxConfigBytes + 1);  // one more than the reader takes: it says so
}

absl::StatusOr<Config> LoadConfig(const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  return ParseConfig(text, source);
}

}  // namespace ringzero
