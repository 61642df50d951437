// Real configurations of DeepSpeed users, each with its verdict: ../shared/deepspeed_configs, or
// the folder that RINGZERO_DEEPSPEED_CONFIGS names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "zero/config/config.h"

namespace ringzero {
namespace {

using Names = std::set<std::string>;
using Row = std::map<std::string, std::string>;

std::string Folder() {
  const char* named = std::getenv("RINGZERO_DEEPSPEED_CONFIGS");
  return named != nullptr ? named : "../shared/deepspeed_configs";
}

std::vector<Row> ReadIndex(const std::string& folder) {
  std::ifstream in(folder + "/index.tsv");
  std::vector<Row> rows;
  std::vector<std::string> titles;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (titles.empty()) {
      titles = cells;
      continue;
    }
    Row row;
    for (size_t i = 0; i < titles.size() && i < cells.size(); ++i) row[titles[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

Names Listed(const std::string& cell) { return absl::StrSplit(cell, ',', absl::SkipEmpty()); }

std::string Last(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// "a.b [DeepSpeed: …] ;; optimizer.type=X [… ;; …]": the keys, or nothing for "value: …".
Names RefusedKeys(const std::string& reason) {
  Names keys;
  for (const absl::string_view text : absl::StrSplit(reason, " ;; ")) {
    const std::string part(text);
    if (absl::StartsWith(part, "value: ")) continue;
    keys.insert(part.substr(0, part.find_first_of(" =")));
  }
  keys.erase("");
  return keys;
}

Names AutosOf(const Findings& findings) {
  Names paths;
  for (const Finding& finding : findings.all()) {
    const bool is_auto = finding.is_auto || finding.kind == Finding::Kind::kAuto ||
                         finding.kind == Finding::Kind::kMustSet;
    if (is_auto) paths.insert(finding.path);
  }
  return paths;
}

Names PathsOf(const Findings& findings, std::initializer_list<Finding::Kind> kinds) {
  Names paths;
  for (const Finding& finding : findings.all()) {
    for (const Finding::Kind kind : kinds) {
      if (finding.kind == kind) paths.insert(finding.path);
    }
  }
  return paths;
}

void CheckRow(const Row& row, const CheckedConfig& checked) {
  const std::string& wanted = row.at("verdict");
  const bool may_refuse = !row.at("alt_verdict").empty();
  const Names errors = PathsOf(checked.findings, {Finding::Kind::kError});
  const Verdict verdict = checked.verdict();
  if (verdict == Verdict::kReject) {
    EXPECT_TRUE(wanted == "reject" || may_refuse) << absl::StrJoin(errors, ", ");
    // For that reason: exactly the keys listed; values are listed only where no key is.
    const Names reasons = RefusedKeys(row.at("reject_reason"));
    for (const std::string& key : reasons) EXPECT_TRUE(errors.contains(key)) << key;
    if (reasons.empty()) {
      EXPECT_EQ(errors.size(), 1u) << absl::StrJoin(errors, ", ");
      const std::string said = row.at("reject_reason");
      if (absl::StrContains(said, "ValidationError")) {
        EXPECT_TRUE(absl::StrContains(said, Last(*errors.begin()))) << *errors.begin();
      }
    }
    return;
  }
  EXPECT_NE(wanted, "reject") << row.at("reject_reason");
  Names named;
  for (const std::string& path :
       PathsOf(checked.findings, {Finding::Kind::kNoEffect, Finding::Kind::kMinor})) {
    named.insert(Last(path));
  }
  const Names needed = Listed(row.at("warn_keys"));
  const Names optional = Listed(row.at("warn_keys_optional"));
  for (const std::string& key : needed) EXPECT_TRUE(named.contains(key)) << key;
  for (const std::string& key : named) {
    EXPECT_TRUE(needed.contains(key) || optional.contains(key)) << key << " is no warning";
  }
  EXPECT_EQ(ToString(verdict), wanted) << absl::StrJoin(named, ", ");
}

TEST(DeepSpeedSamples, EachHasItsVerdictForItsReason) {
  const std::string folder = Folder();
  if (!std::filesystem::exists(folder + "/index.tsv")) {
    GTEST_SKIP() << folder << "/index.tsv is not there (RINGZERO_DEEPSPEED_CONFIGS names another)";
  }
  const std::vector<Row> rows = ReadIndex(folder);
  EXPECT_GT(rows.size(), 0u);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.at("file") + ", " + row.at("verdict"));
    const absl::StatusOr<std::string> text = ReadConfigFile(folder + "/" + row.at("file"));
    ASSERT_TRUE(text.ok()) << text.status();
    const ConfigSource source{.file = row.at("file")};
    CheckedConfig checked = CheckConfig(*text, source);
    CheckRow(row, checked);
    // None is a whole run: DeepSpeed's files have no model.
    EXPECT_FALSE(FillForTraining(checked).empty() && checked.verdict() != Verdict::kReject);
    EXPECT_EQ(AutosOf(checked.findings), Listed(row.at("auto_keys")));
    if (checked.verdict() == Verdict::kReject) continue;
    // What is printed reads back, as the same.
    const std::string printed = checked.config.Print();
    const CheckedConfig again = CheckConfig(printed, source);
    EXPECT_TRUE(again.status().ok()) << again.status();
    EXPECT_EQ(again.config.keys.SharedLines(), checked.config.keys.SharedLines());
  }
}

}  // namespace
}  // namespace ringzero
