// DeepSpeed 0.19.8's own answers, computed by tests/zero/data/make_deepspeed_data.py: learning
// rates, loss scales, batch sizes, and which small configurations it takes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "zero/config/config.h"
#include "zero/config/json_value.h"
#include "zero/loss_scale.h"

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
    LossScale dp(config->precision.loss_scale, 1), cdp(config->precision.loss_scale, 2);
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

// What DeepSpeedConfig refuses is refused here, unless "lax" says why not; what it takes is taken,
// unless "ours" says why not.
TEST(DeepSpeedAnswers, SmallConfigurations) {
  for (const JsonValue& row : ReadRows("verdicts.jsonl")) {
    SCOPED_TRACE(WriteJson(row));
    const ConfigSource source{.file = "run.json"};
    const CheckedConfig checked = CheckConfig(WriteJson(*row.Find("config")), source);
    const bool theirs = row.Find("deepspeed")->kind == JsonValue::Kind::kString;
    const bool refused = row.Find("lax") == nullptr && (row.Find("ours") != nullptr || theirs);
    EXPECT_EQ(checked.verdict() == Verdict::kReject, refused) << checked.status();
    if (checked.verdict() == Verdict::kReject) continue;
    const CheckedConfig again = CheckConfig(checked.config.Print(), source);
    EXPECT_TRUE(again.status().ok()) << again.status();
    EXPECT_EQ(again.config.Print(), CheckConfig(again.config.Print(), source).config.Print());
    EXPECT_EQ(again.config.keys.SharedLines(), checked.config.keys.SharedLines());
  }
}

}  // namespace
}  // namespace ringzero
