// DeepSpeed 0.19.8's own answers, computed by tests/zero/data/make_deepspeed_data.py: learning
// rates, loss scales, batch sizes, and which small configurations it takes. And samples of its users.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "zero/config/config.h"
#include "zero/config/json_value.h"
#include "zero/precision.h"

namespace ringzero {
namespace {

std::vector<JsonValue> ReadRows(const std::string& name) {
  std::vector<JsonValue> rows;
  std::ifstream in("tests/zero/data/" + name);
  for (std::string line; std::getline(in, line);) {
    absl::StatusOr<JsonValue> row = ReadJson(line, name);
    EXPECT_TRUE(row.ok()) << row.status();
    if (row.ok()) rows.push_back(*std::move(row));
  }
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

// [value, n] stands for n values that are alike.
std::vector<double> Unpacked(const JsonValue& packed) {
  std::vector<double> values;
  for (const JsonValue& value : packed.children) {
    const bool many = value.kind == JsonValue::Kind::kArray;
    values.insert(values.end(), many ? value.children[1].integer : 1,
                  many ? value.children[0].number : value.number);
  }
  return values;
}

// A run with that scheduler, as a configuration.
std::string RunWith(const JsonValue& scheduler, double rate) {
  return absl::StrCat(R"({"model": {"type": "mlp"}, "data": {"type": "random"}, "iterations": 200,
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95], "lr": )",
                      WriteJson(JsonValue::Number(rate)), R"(}},
    "scheduler": )",
                      WriteJson(scheduler), "}");
}

// DeepSpeed's values are Python's doubles; logarithms and cosines of two libraries may differ in
// their last bit.
void ExpectSame(double ours, double theirs) {
  EXPECT_LE(std::abs(ours - theirs), 2e-15 * std::abs(theirs)) << ours << " and " << theirs;
}

TEST(DeepSpeedAnswers, LearningRates) {
  for (const JsonValue& row : ReadRows("rates.jsonl")) {
    const JsonValue& scheduler = *row.Find("scheduler");
    SCOPED_TRACE(WriteJson(scheduler));
    const double base = row.Find("lr")->number;
    const ConfigSource source{.file = "run.json"};
    const absl::StatusOr<Config> config = ParseConfig(RunWith(scheduler, base), source);
    ASSERT_TRUE(config.ok()) << config.status();
    const std::vector<double> rates = Unpacked(*row.Find("rates"));
    const std::vector<double> betas = Unpacked(*row.Find("beta1"));
    ASSERT_EQ(rates.size(), 200u);
    for (size_t t = 0; t < rates.size(); ++t) {
      const UpdateRate at = RateAt(config->optimizer.curve, base, static_cast<int64_t>(t));
      ExpectSame(at.rate, rates[t]);
      ASSERT_EQ(at.betas.has_value(), !betas.empty());
      if (betas.empty()) continue;
      ExpectSame(at.betas->beta1, betas[t]);
      EXPECT_EQ(at.betas->beta2, 0.99);
    }
  }
}

// In dp the scale has seen all overflows before; with a lag of 2 it is the one of an iteration
// later.
TEST(DeepSpeedAnswers, LossScales) {
  int gave_up = 0;
  for (const JsonValue& row : ReadRows("scales.jsonl")) {
    SCOPED_TRACE(WriteJson(*row.Find("fp16")));
    const int64_t stage = row.Find("stage")->integer;
    const std::string run =
        absl::StrCat(R"({"model": {"type": "mlp"}, "data": {"type": "random"}, "iterations": 1,
          "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "SGD", "params": {"lr": 1}},
          "zero_optimization": {"stage": )",
                     stage, R"(}, "fp16": )", WriteJson(*row.Find("fp16")), "}");
    const absl::StatusOr<Config> config = ParseConfig(run, {.file = "run.json"});
    ASSERT_TRUE(config.ok()) << config.status();
    LossScale dp(config->precision.loss_scale, {.lag = 1}),
        cdp(config->precision.loss_scale, {.lag = 2});
    const std::string& iterations = row.Find("iterations")->text;
    const bool gives_up = row.Find("gives_up")->boolean;
    double wanted = row.Find("begins_at")->number;
    ASSERT_EQ(cdp.Of(0), wanted);
    for (int t = 0; t < static_cast<int>(iterations.size()); ++t) {
      ASSERT_EQ(dp.Of(t), wanted) << t;
      ASSERT_EQ(cdp.Of(t + 1), wanted) << t;
      const char now = iterations[t];
      const bool overflowed = now != '.' && now != '+';
      const bool ends = gives_up && t + 1 == static_cast<int>(iterations.size());
      ASSERT_EQ(dp.Note(t, overflowed).ok(), !ends) << t;
      ASSERT_EQ(cdp.Note(t, overflowed).ok(), !ends) << t;
      if (now == '+') wanted *= 2;
      if (now == '-') wanted /= 2;
      if (now == '_') wanted = config->precision.loss_scale.minimum;
    }
    gave_up += gives_up ? 1 : 0;
    EXPECT_FALSE(gives_up && stage == 0);
  }
  EXPECT_GT(gave_up, 0);
}

TEST(DeepSpeedAnswers, BatchTriples) {
  for (const JsonValue& row : ReadRows("batches.jsonl")) {
    SCOPED_TRACE(WriteJson(row));
    const std::vector<JsonValue>& given = row.Find("given")->children;
    const std::vector<JsonValue>& answers = row.Find("answers")->children;
    for (size_t workers = 1; workers <= answers.size(); ++workers) {
      const absl::StatusOr<BatchTriple> ours = CompleteBatch({.train_batch = given[0].integer,
                                                              .micro_batch = given[1].integer,
                                                              .laps = given[2].integer},
                                                             workers);
      const JsonValue& answer = answers[workers - 1];
      ASSERT_EQ(ours.ok(), answer.kind == JsonValue::Kind::kArray) << ours.status();
      if (!ours.ok()) continue;
      EXPECT_EQ(ours->train_batch, answer.children[0].integer);
      EXPECT_EQ(ours->micro_batch, answer.children[1].integer);
      EXPECT_EQ(ours->laps, answer.children[2].integer);
    }
  }
}

// Empty: there is none.
std::string FirstErrorOf(const CheckedConfig& checked) {
  const Finding* error = checked.findings.First(Finding::Kind::kError);
  return error == nullptr ? "" : error->line;
}

// What DeepSpeedConfig refuses is refused here, unless "lax" says why not; what it takes is taken,
// unless "ours" says why not.
TEST(DeepSpeedAnswers, SmallConfigurations) {
  for (const JsonValue& row : ReadRows("verdicts.jsonl")) {
    SCOPED_TRACE(WriteJson(row));
    const ConfigSource source{.file = "run.json"};
    const CheckedConfig checked = CheckConfig(WriteJson(*row.Find("config")), source);
    const bool theirs = row.Find("deepspeed")->kind == JsonValue::Kind::kString;
    const bool refused = row.Find("lax") == nullptr && (row.Find("ours") != nullptr || theirs);
    const std::string error = FirstErrorOf(checked);
    EXPECT_EQ(!error.empty(), refused) << error;
    if (!error.empty()) continue;
    const CheckedConfig again = CheckConfig(checked.config.Print(), source);
    EXPECT_EQ(FirstErrorOf(again), "");
    EXPECT_EQ(again.config.Print(), CheckConfig(again.config.Print(), source).config.Print());
    EXPECT_EQ(again.config.keys.SharedLines(), checked.config.keys.SharedLines());
  }
}

// Real configurations of DeepSpeed users, each with its verdict: ../shared/deepspeed_configs, or
// the folder that RINGZERO_DEEPSPEED_CONFIGS names.

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
    const bool is_auto = finding.kind == Finding::Kind::kAuto ||
                         finding.kind == Finding::Kind::kMustSet ||
                         absl::EndsWith(finding.line, "; \"auto\" needs no value");
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

// Of what is not refused. "accept_auto": once its "auto" values (or a batch size) are given;
// "warn": with a line for each key that does nothing here.
std::string VerdictOf(const CheckedConfig& checked) {
  using Kind = Finding::Kind;
  const ResolvedKeys& keys = checked.config.keys;
  const bool no_batch =
      !keys.Has("train_batch_size") && !keys.Has("train_micro_batch_size_per_gpu");
  if (no_batch || !AutosOf(checked.findings).empty()) return "accept_auto";
  const bool warns = !PathsOf(checked.findings, {Kind::kNoEffect, Kind::kOutside}).empty();
  return warns ? "warn" : "accept";
}

void CheckRow(const Row& row, const CheckedConfig& checked) {
  const std::string& wanted = row.at("verdict");
  const bool may_refuse = !row.at("alt_verdict").empty();
  const Names errors = PathsOf(checked.findings, {Finding::Kind::kError});
  if (!errors.empty()) {
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
  EXPECT_EQ(VerdictOf(checked), wanted) << absl::StrJoin(named, ", ");
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
    EXPECT_FALSE(FillForTraining(checked).empty() && FirstErrorOf(checked).empty());
    EXPECT_EQ(AutosOf(checked.findings), Listed(row.at("auto_keys")));
    if (!FirstErrorOf(checked).empty()) continue;
    // What is printed reads back, as the same.
    const std::string printed = checked.config.Print();
    const CheckedConfig again = CheckConfig(printed, source);
    EXPECT_EQ(FirstErrorOf(again), "");
    EXPECT_EQ(again.config.keys.SharedLines(), checked.config.keys.SharedLines());
  }
}

}  // namespace
}  // namespace ringzero
