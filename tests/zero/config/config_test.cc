// Configuration: values, defaults, overrides, the batch triple, and every message for bad input.
#include "zero/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/config/golden.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kResNet[] = R"({
  // A comment.
  "model": {"type": "resnet", "depth": 20},
  "data": {"type": "idx", "path": "/data/fashion"},
  "epochs": 2,  /* another */
  "train_micro_batch_size_per_gpu": 32,
  "gradient_accumulation_steps": 3,
  "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}},
  "cyclic": {"workers": 2, "rule": "cdp_v1"}
}
)";

std::string Message(const std::string& text, const std::vector<std::string>& sets = {}) {
  const absl::StatusOr<Config> config = ParseConfig(text, {.file = "run.json", .overrides = sets});
  return config.ok() ? "accepted" : std::string(config.status().message());
}

Config Parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  absl::StatusOr<Config> config = ParseConfig(text, {.file = "run.json", .overrides = sets});
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : Config();
}

TEST(Config, WidthFollowsTheDepthUnlessGiven) {
  EXPECT_EQ(Parse(kResNet, {"model.depth=18"}).model.width, 64);
  EXPECT_EQ(Parse(kResNet, {"model.depth=50"}).model.width, 64);
  EXPECT_EQ(Parse(kResNet, {"model.depth=56"}).model.width, 16);
  EXPECT_EQ(Parse(kResNet, {"model.depth=18", "model.width=8"}).model.width, 8);
}

TEST(Config, ReadsWhatIsGivenAndFillsTheRest) {
  const Config config = Parse(kResNet);
  EXPECT_EQ(config.model.type, ModelConfig::Type::kResNet);
  EXPECT_EQ(config.model.depth, 20);
  EXPECT_EQ(config.model.width, 16);
  EXPECT_EQ(config.data.path, "/data/fashion");
  EXPECT_EQ(config.epochs, 2);
  EXPECT_FALSE(config.iterations.has_value());
  EXPECT_EQ(config.batch.train_batch, 32 * 3 * 2);
  EXPECT_EQ(config.optimizer.type, OptimizerOptions::Type::kSgd);
  EXPECT_EQ(config.optimizer.learning_rate, 0.05);
  EXPECT_EQ(config.optimizer.sgd.momentum, 0.9);
  EXPECT_EQ(config.optimizer.sgd.weight_decay, 5e-4);
  EXPECT_EQ(config.cyclic.rule, Rule::kCdpV1);
  EXPECT_EQ(config.cyclic.workers, 2);
  EXPECT_EQ(config.evaluation.batch_size, 32);
  EXPECT_FALSE(config.evaluation.every.has_value());
}

TEST(Config, DefaultsOfTheRing) {
  const Config config = Parse(kResNet, {"cyclic={}"});
  EXPECT_EQ(config.cyclic.rule, Rule::kDp) << "as in DeepSpeed";
  EXPECT_EQ(config.cyclic.clipping, Clipping::kExact) << "DeepSpeed clips at 1";
  EXPECT_FALSE(config.cyclic.strict);
  const Config clipped = Parse(kResNet, {"cyclic.rule=cdp_v2"});
  EXPECT_TRUE(clipped.cyclic.strict) << "cdp_v2 clips exactly in its strict form";
  EXPECT_EQ(clipped.cyclic.slack, 0);
  const Config unclipped = Parse(kResNet, {"cyclic.rule=cdp_v2", "gradient_clipping=0"});
  EXPECT_EQ(unclipped.cyclic.clipping, Clipping::kOff);
  EXPECT_FALSE(unclipped.cyclic.strict);
  EXPECT_EQ(unclipped.cyclic.slack, 1);
  EXPECT_EQ(config.cyclic.pending, 1);
  EXPECT_EQ(config.cyclic.workers, 4);
  EXPECT_FALSE(config.cyclic.stagger);
  EXPECT_FALSE(config.cyclic.predict.has_value() || config.cyclic.warmup_updates.has_value());
  EXPECT_TRUE(config.cyclic.exchange);
  EXPECT_EQ(config.cyclic.transport, TransportChoice::kAuto);
  EXPECT_EQ(config.cyclic.threads, 1);
  EXPECT_EQ(config.cyclic.wait_timeout, std::chrono::minutes(10));
  EXPECT_EQ(config.cyclic.peer_timeout, std::chrono::seconds(5));
}

TEST(Config, PrintsEveryValueWithItsOriginAndReadsItBack) {
  const Config config = Parse(kResNet, {"seed=7", "cyclic.stages=8"});
  const std::string text = config.Print();
  ExpectGolden("tests/zero/golden/resolved_resnet.json", text);
  const Config again = Parse(text);
  EXPECT_EQ(again.batch.train_batch, config.batch.train_batch);
  EXPECT_EQ(again.seed, 7u);
  // The same values; only their origin is now the file.
  const std::string second = Parse(again.Print()).Print();
  EXPECT_EQ(second, again.Print());
  const std::string gpt = Parse(kResNet, {"model.type=gpt", "data.type=text", "data.path=bible.txt",
                                          "optimizer.type=AdamW"})
                              .Print();
  ExpectGolden("tests/zero/golden/resolved_gpt.json", gpt);
}

TEST(Config, ValuesAreReadAsPydanticsLaxModeDoes) {
  for (const char* samples : {"5e3", "5000.0", "\"5000\"", "\"5e3\""}) {
    const std::string set = absl::StrCat("data.samples=", samples);
    EXPECT_EQ(Parse(kResNet, {"data.type=random", set}).data.samples, 5000) << set;
  }
  for (const char* on : {"true", "1", "1.0", "yes", "\"True\""}) {
    EXPECT_TRUE(Parse(kResNet, {absl::StrCat("cyclic.checksums=", on)}).cyclic.checksums) << on;
  }
  EXPECT_EQ(Parse(kResNet, {"cyclic.stages=true"}).cyclic.stages, 1);
  EXPECT_EQ(Parse(kResNet, {"cyclic.stages=null"}).cyclic.stages, 0) << "null is as absent";
  EXPECT_THAT(Message(kResNet, {"train_batch_size=\"192\""}), HasSubstr("wanted an integer"));
  EXPECT_THAT(Message(kResNet, {"cyclic.slack=1.5"}), HasSubstr("wanted an integer, found 1.5"));
}

OptimizerOptions Optimizer(const std::vector<std::string>& sets) {
  return Parse(kResNet, sets).optimizer;
}

TEST(Config, AdamMeansAdamWAsInDeepSpeed) {
  using Type = OptimizerOptions::Type;
  const OptimizerOptions adam =
      Optimizer({"optimizer.type=Adam", "optimizer.params.betas=[0.8,0.9]"});
  EXPECT_EQ(adam.type, Type::kAdamW);
  EXPECT_EQ(adam.adamw.beta1, 0.8);
  EXPECT_EQ(adam.learning_rate, 0.05);  // belongs to both types
  const std::string in_gradient = "optimizer.params.adam_w_mode=false";
  EXPECT_EQ(Optimizer({"optimizer.type=Adam", in_gradient}).type, Type::kAdam);
  EXPECT_EQ(Optimizer({"optimizer.type=AdamW", in_gradient}).type, Type::kAdamW);
}

TEST(Config, LionAdagradLambAndMuon) {
  const OptimizerOptions lion =
      Optimizer({"optimizer.type=Lion", "optimizer.params.betas=[0.9,0.98]",
                 "optimizer.params.weight_decay=0.2"});
  EXPECT_EQ(lion.type, OptimizerOptions::Type::kLion);
  EXPECT_EQ(lion.lion.beta2, 0.98);
  EXPECT_EQ(lion.lion.weight_decay, 0.2);
  EXPECT_EQ(lion.lion.form, UpdateForm::kDeepSpeed);
  const OptimizerOptions adagrad =
      Optimizer({"optimizer.type=Adagrad", "optimizer.params.lr_decay=0.1",
                 "optimizer.params.initial_accumulator_value=0.5"});
  EXPECT_EQ(adagrad.type, OptimizerOptions::Type::kAdagrad);
  EXPECT_EQ(adagrad.adagrad.rate_decay, 0.1);
  EXPECT_EQ(adagrad.adagrad.initial_accumulator, 0.5);
  EXPECT_EQ(adagrad.adagrad.epsilon, 1e-10);
  const OptimizerOptions lamb =
      Optimizer({"optimizer.type=Lamb", "optimizer.params.max_coeff=0.5"});
  EXPECT_EQ(lamb.type, OptimizerOptions::Type::kLamb);
  EXPECT_EQ(lamb.lamb.max_ratio, 0.5);
  EXPECT_EQ(lamb.lamb.min_ratio, 0.01);
  EXPECT_EQ(lamb.lamb.epsilon, 1e-8);
  EXPECT_EQ(lamb.lamb.form, UpdateForm::kDeepSpeed);
  const std::string paper = "optimizer.form=paper";
  EXPECT_EQ(Optimizer({"optimizer.type=Lamb", paper}).lamb.form, UpdateForm::kPaper);
  EXPECT_EQ(Optimizer({"optimizer.type=Lion", paper}).lion.form, UpdateForm::kPaper);
  const OptimizerOptions muon =
      Optimizer({"optimizer.type=Muon", "optimizer.params.muon_lr=0.02",
                 "optimizer.params.adam_lr=0.001", "optimizer.params.adam_names=[\"fc*\"]"});
  EXPECT_EQ(muon.type, OptimizerOptions::Type::kMuon);
  EXPECT_EQ(muon.learning_rate, 0.02);
  EXPECT_DOUBLE_EQ(muon.muon.rest_factor, 0.05);
  EXPECT_EQ(muon.muon.rest, std::vector<std::string>{"fc*"});
  EXPECT_EQ(muon.adamw.beta2, 0.95);
  // lr, where it is given, is both rates.
  EXPECT_EQ(Optimizer({"optimizer.type=Muon"}).muon.rest_factor, 1);
}

TEST(Config, GroupsAndDecay) {
  const OptimizerOptions options =
      Optimizer({"optimizer.type=AdamW", "optimizer.decay=matrices",
                 R"(optimizer.groups=[{"params": "fc.*", "lr_factor": 0.1},)"
                 R"( {"params": "*", "weight_decay": 0.5, "betas": [0.8, 0.9]}])"});
  EXPECT_EQ(options.decays, OptimizerOptions::Decays::kMatrices);
  ASSERT_EQ(options.groups.size(), 2u);
  EXPECT_EQ(options.groups[0].pattern, "fc.*");
  EXPECT_EQ(options.groups[0].rate_factor, 0.1);
  EXPECT_FALSE(options.groups[0].weight_decay.has_value());
  EXPECT_EQ(options.groups[1].weight_decay, 0.5);
  EXPECT_EQ(options.groups[1].betas->beta2, 0.9);
}

TEST(Config, PhasesOfTheRate) {
  const RateCurve cosine =
      Parse(kResNet, {R"(scheduler={"type": "Cosine", "params": {"warmup_num_steps": 10,)"
                      R"( "total_num_steps": 110, "min_lr_ratio": 0.1}})"})
          .optimizer.curve;
  EXPECT_EQ(RateAt(cosine, 1, 0).rate, 0.1);
  EXPECT_DOUBLE_EQ(RateAt(cosine, 1, 60).rate, 0.1 + 0.9 * 0.5);
  const RateCurve stable =
      Parse(kResNet, {R"(scheduler={"type": "WarmupStableDecay", "params": {"decay_num_steps": 20,)"
                      R"( "total_num_steps": 100}})"})
          .optimizer.curve;
  EXPECT_EQ(RateAt(stable, 1, 80).rate, 1);
  EXPECT_EQ(RateAt(stable, 1, 90).rate, 0.5);
}

TEST(Config, ADecayMayEndWithTheRun) {
  const std::vector<std::string> decay = {
      "epochs=3", R"(scheduler={"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}})"};
  // The data says how long an epoch is: at a run only.
  const Config files = Parse(kResNet, decay);
  EXPECT_TRUE(files.curve_ends_with_run);
  EXPECT_EQ(Parse(files.Print()).curve_ends_with_run, true);
  std::vector<std::string> random = decay;
  random.insert(random.end(), {"data.type=random", "data.samples=1000"});
  const Config known = Parse(kResNet, random);
  EXPECT_FALSE(known.curve_ends_with_run);
  EXPECT_EQ(known.optimizer.curve.warmup.total_updates, 3 * (1000 / (32 * 3 * 2)));
  std::vector<std::string> counted = decay;
  counted.push_back("iterations=77");
  counted.erase(counted.begin());
  EXPECT_EQ(Parse(kResNet, counted).optimizer.curve.warmup.total_updates, 77);
}

TEST(Batch, TwoGiveTheThird) {
  const auto complete = [](BatchTriple given, int64_t workers) {
    const absl::StatusOr<BatchTriple> batch = CompleteBatch(given, workers);
    return batch.ok() ? std::vector<int64_t>{batch->train_batch, batch->micro_batch, batch->laps}
                      : std::vector<int64_t>{};
  };
  EXPECT_THAT(complete({.train_batch = 32, .micro_batch = 2, .laps = 4}, 4), ElementsAre(32, 2, 4));
  EXPECT_THAT(complete({.train_batch = 32, .micro_batch = 2}, 4), ElementsAre(32, 2, 4));
  EXPECT_THAT(complete({.train_batch = 32, .laps = 4}, 4), ElementsAre(32, 2, 4));
  EXPECT_THAT(complete({.micro_batch = 2, .laps = 4}, 4), ElementsAre(32, 2, 4));
  EXPECT_THAT(complete({.train_batch = 32}, 4), ElementsAre(32, 8, 1));
  EXPECT_THAT(complete({.micro_batch = 8}, 4), ElementsAre(32, 8, 1));
  EXPECT_THAT(complete({.train_batch = 33}, 4), ElementsAre());
  EXPECT_THAT(complete({.train_batch = 32, .micro_batch = 3}, 4), ElementsAre());
  EXPECT_THAT(complete({.train_batch = 32, .micro_batch = 16}, 4), ElementsAre());
  EXPECT_THAT(complete({.laps = 4}, 4), ElementsAre());
  EXPECT_THAT(complete({.micro_batch = 1 << 30, .laps = 1 << 30}, 1024), ElementsAre());
  // 2^70 is 0 in 64 bits.
  EXPECT_THAT(complete({.train_batch = 64, .micro_batch = 1 << 30, .laps = 1 << 30}, 1024),
              ElementsAre());
}

TEST(Overrides, TypeReplacesItsSection) {
  const Config config = Parse(kResNet, {"data.type=random", "model.type=mlp"});
  EXPECT_EQ(config.data.type, "random");
  EXPECT_EQ(config.data.path, "");  // belonged to idx
  EXPECT_THAT(config.model.hidden, ElementsAre(256, 128));
  // Keys that are set too stay, whatever the order; one of the wrong type is then an error.
  EXPECT_EQ(Parse(kResNet, {"data.samples=64", "data.type=random"}).data.samples, 64);
  EXPECT_THAT(Message(kResNet, {"data.type=random", "data.path=/x"}),
              HasSubstr("has no meaning for data.type random"));
  // Keys of both types stay, and the same type again drops nothing.
  EXPECT_EQ(Parse(kResNet, {"optimizer.type=SGD"}).optimizer.sgd.momentum, 0.9);
}

TEST(Overrides, IterationsDropEpochs) {
  const Config config = Parse(kResNet, {"iterations=5"});
  EXPECT_EQ(config.iterations, 5);
  EXPECT_FALSE(config.epochs.has_value());
}

TEST(Overrides, ValuesAreJsonElseStrings) {
  EXPECT_EQ(Parse(kResNet, {"data.path=a b.txt"}).data.path, "a b.txt");
  EXPECT_EQ(Parse(kResNet, {"data.path=\"12\""}).data.path, "12");
  EXPECT_THAT(Message(kResNet, {"data.path=12"}),
              StartsWith("--set data.path=12: data.path: wanted a string, found 12"));
  EXPECT_EQ(Parse(kResNet, {"seed=1", "seed=2"}).seed, 2u);                  // the last one wins
  EXPECT_EQ(Parse(kResNet, {"steps_per_print=4294967297"}).steps_per_print,  // 1 in 32 bits
            std::numeric_limits<int>::max());
}

TEST(Overrides, HaveTheReadersLevels) {
  std::string deep = "a";
  for (int i = 0; i < 50000; ++i) deep += ".a";
  EXPECT_THAT(Message(kResNet, {deep + "=1"}), HasSubstr("...: more than 64 levels"));
  // Each of these values knows its option, but no copy of all of it.
  std::string many = "zzz={";
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&many, "\"k", i, "\": 1, ");
  EXPECT_THAT(Message(kResNet, {many + "}"}), HasSubstr("...: zzz: unknown key"));
}

TEST(Overrides, AreNotToBlameForADocumentThatIsAnArray) {
  EXPECT_EQ(Message("[1]", {"seed=1"}),
            "run.json:1: wanted an object at the top, found the list [1]");
}

// Line n of the golden file belongs to case n.
TEST(Config, MessagesForBadInput) {
  const std::string base = kResNet;
  const auto with = [&](const std::string& members) {
    return absl::StrCat("{\n", members, ",", base.substr(1));
  };
  std::string messages;
  const auto record = [&](const std::string& text, const std::vector<std::string>& sets = {}) {
    const std::string message = Message(text, sets);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    absl::StrAppend(&messages, message, "\n");
  };
  // Not JSON, or not the right shape.
  record("");
  record("[1]");
  record("{\"model\": {},}");
  record("{\"model\": ");
  record("{\"a\": 1e999}");
  record("{\n\"seed\": 1,\n\"seed\": 2}");
  record("{\"model\": {\"type\": \"mlp\",\n \"x\": [{\"a\": 1, \"a\": 2}]}}");
  record(std::string(100, '['));
  record("{\"seed\": \"\xff\"}");
  record("{\"seed\": \"\xed\xa0\x80\"}");  // half of a surrogate of UTF-16
  record(with("\"\": 1"));
  record(base, {R"(cyclic={"": 1})"});
  record(base, {R"(optimizer.groups=[{"": 1}])"});
  // Unknown, elsewhere, not built, removed.
  record(with("\"sed\": 1"));
  record(with("\"slack\": 1"));
  record(with("\"schedular\": {}"));
  record(with("\"scheduler\": {\"type\": \"StepLR\", \"params\": {\"gamma\": 1}}"));
  record(with("\"scheduler\": {\"type\": \"WarmupCosine\", \"params\": {\"total\": 1}}"));
  record(with("\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {}}"));
  record(with("\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": [1, 2]}}"));
  record(with("\"amp\": {\"enabled\": false}"));
  record(with("\"zero_optimization\": {\"stage\": 4}"));
  record(with("\"zero_optimization\": {\"overlap_com\": true}"));
  record(with("\"gradient_clipping\": \"auto\""));
  record(base, {"optimizer.params.lr=auto", "optimizer.params.momentum=auto"});
  record(base, {"gradient_accumulation_steps=auto"});
  record(base, {"cyclic.rule=cdp_v2", "gradient_clipping=1", "cyclic.strict=false"});
  record(base, {"cyclic.slak=1"});
  record(base, {"optimizer.params.betas=[0.9, 0.99]"});
  record(base, {"optimizer.params.learning_rate=1"});
  record(base, {"optimizer.type=Lomb"});
  record(base, {"optimizer.type=Lamb", "optimizer.params.max_coeff=0.001"});
  record(base, {"optimizer.type=Lamb", "optimizer.params.eps_inside_sqrt=true"});
  record(base, {"optimizer.type=Muon", "optimizer.params.momentum=1"});
  record(base, {"optimizer.decay=matrixes"});
  record(base, {"optimizer.groups={}"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias", "lr_faktor": 1}])"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias", "lr": 1}])"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias"}, {"weight_decay": 1}])"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias", "weight_decay": -1}])"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias", "betas": [0.9, 0.99]}])"});
  record(base, {R"(optimizer.groups=[{"params": "*.bias", "betas": [0.9]}])"});
  record(
      with("\"scheduler\": {\"type\": \"WarmupStableDecay\", \"params\": {\"decay_num_steps\": "
           "9, \"total_num_steps\": 5}}"));
  record(with("\"scheduler\": {\"type\": \"Cosin\", \"params\": {}}"));
  record(base, {"optimizer.type=OneBitAdam"});
  record(base, {"optimizer.type=\"\""});
  record(base, {"optimizer.type=sgd"});
  record(base, {"optimizer.params.max_grad_norm=1"});
  record(base, {"optimizer.type=SDG"});
  record(base, {"optimizer.type=adamw_torch"});
  record(base, {"optimizer.type=Adam", "optimizer.params.bias_correction=false"});
  // Types and ranges.
  record(base, {"cyclic.slack=two"});
  record(base, {"cyclic.slack=true"});
  record(base, {"cyclic.slack=[1]"});
  record(base, {"cyclic.slack=1"});
  record(base, {"cyclic.rule=dp", "cyclic.slack=0"});
  record(base, {"cyclic.workers=010"});
  record(base, {"optimizer.params.lr=-00.1"});
  record(base, {"iterations=5e20"});
  record(base, {"train_batch_size=4294967296"});
  record(base, {"cyclic=1"});
  record(base, {"cyclic.workers=0"});
  record(base, {"cyclic.workers=5000"});
  record(base, {"cyclic.rule=cdp"});
  record(base, {"cyclic.exchange=2"});
  record(base, {"cyclic.wait_timeout=0"});
  record(base, {"cyclic.peer_timeout=0"});
  record(base, {"cyclic.peer_timeout=soon"});
  record(base, {"cyclic.checksums=-1"});
  for (const char* value :
       {"much", "12GB", "\"1 .GiB\"", "0", "1.5", "[1]", "99999999999TiB", "010GiB", "1e19"}) {
    record(base, {absl::StrCat("cyclic.memory_budget.host=", value)});
  }
  record(base, {"cyclic.memory_budget.hots=1"});
  record(base, {"cyclic.injct={}"});  // keys for tests are not proposed
  record(base, {"cyclic.inject.action=kill", "cyclic.inject.worker=99"});
  record(base, {"cyclic.inject.action=flip", "cyclic.inject.at=end"});
  record(base, {"cyclic.rule=cdp2"});
  record(base, {"cyclic.boundaries=[]"});
  record(base, {"cyclic.boundaries=[1, 2]"});
  record(base, {"cyclic.boundaries=[0, 2, 2]"});
  record(base, {"cyclic.boundaries=[0, 2]", "cyclic.stages=3"});
  record(base, {"cyclic.boundaries=[0, 2.5]"});
  record(base, {"optimizer.params.lr=-1"});
  record(base, {"optimizer.type=AdamW", "optimizer.params.betas=[0.9, 1]"});
  record(base, {"optimizer.type=AdamW", "optimizer.params.betas=[0.9]"});
  record(base, {"optimizer.params.nesterov=true", "optimizer.params.dampening=0.1"});
  record(base, {"epochs=null"});
  // Combinations.
  record(base, {"model.depth=21"});
  record(base, {"model.type=gpt"});
  record(base, {"model.type=gpt", "data.type=text", "data.path=x", "model.heads=3"});
  record(base, {"model.layers=3"});
  record(base, {"data={\"type\": \"idx\"}"});
  record(base, {"data.type=random", "data.input=[3, 3]"});
  record(base, {"cyclic.rule=dp", "cyclic.stagger=true"});
  record(base, {"cyclic.rule=dp", "cyclic.predict=true"});
  record(base, {"cyclic.rule=dp", "cyclic.warmup_updates=3"});
  record(base, {"cyclic.rule=cdp_v1", "cyclic.predict=1"});
  record(base, {"cyclic.rule=cdp_v1", "cyclic.predict={\"factor\": 2.5}"});
  record(base, {"optimizer.params.momentum=0", "cyclic.predict=true"});
  record(base, {"cyclic.sum_windows=iteration"});
  record(base, {"cyclic.sum_windows=balanced"});
  record(base, {"train_batch_size=100"});
  record(base, {"train_batch_size=2147483647", "gradient_accumulation_steps=2147483647"});
  record("{\"train_batch_size\": 10," + base.substr(1), {"gradient_accumulation_steps=4"});
  record(with("\"iterations\": 3"));
  // Missing.
  record("{}");
  record("{\"model\": {}}");
  record(
      "{\"model\": {\"type\": \"mlp\"}, \"data\": {\"type\": \"random\"},\n \"iterations\": 1,"
      " \"optimizer\": {\"type\": \"SGD\"}}");
  record(
      "{\"model\": {\"type\": \"mlp\"}, \"data\": {\"type\": \"random\"},\n"
      " \"train_batch_size\": 4, \"optimizer\": {\"type\": \"SGD\"}}");
  // The option itself.
  record(base, {"seed"});
  record(base, {"=1"});
  record(base, {"cyclic..rule=dp"});
  record(base, {"seed.x=1"});
  ExpectGolden("tests/zero/golden/config_messages.txt", messages);
  EXPECT_EQ(messages.find("accepted"), std::string::npos) << messages;
}

TEST(Config, TellsAllThatTrainingRefuses) {
  CheckedConfig checked = CheckConfig(
      R"({"train_batch_size": 8, "prescale_gradients": true, "data": {"type": "random"},
          "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
          "fp16": {"enabled": true, "initial_scale_power": 200}})",
      {.file = "f"});
  EXPECT_EQ(checked.findings.First(Finding::Kind::kError), nullptr);
  EXPECT_THAT(FillForTraining(checked),
              ElementsAre(HasSubstr("prescale_gradients: true is not built yet"),
                          HasSubstr("optimizer.params.lr: \"auto\" has no value here"),
                          HasSubstr("model: missing section"), HasSubstr("iterations: missing"),
                          HasSubstr("fp16.initial_scale_power: wanted -126 to 127")));
}

TEST(Config, AProgramMayBringModelAndData) {
  constexpr char kOwn[] = R"({"train_micro_batch_size_per_gpu": 8,
                              "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})";
  RZ_ASSIGN(const Config config, ParseConfig(kOwn, {.file = "f"}, ModelFrom::kProgram));
  EXPECT_FALSE(config.iterations.has_value() || config.epochs.has_value());
  const PlanRequest request = PlanRequestOf(config, {.iterations = 5});
  EXPECT_EQ(request.workers, config.cyclic.workers);
  EXPECT_EQ(request.micro_batch, 8);
  EXPECT_THAT(
      ParseConfig(kOwn, {.file = "f", .overrides = {"data.type=random"}}, ModelFrom::kProgram),
      Says(HasSubstr("data: the program brings it")));
  EXPECT_THAT(ParseConfig(kOwn, {.file = "f"}), Says(HasSubstr("model: missing section")));
}

TEST(Config, FindsAllThatIsWrongInOurOwnSections) {
  const CheckedConfig checked = CheckConfig(
      R"({"model": {"type": "resnet", "depth": 21},
          "cyclic": {"stagger": true, "slack": 1, "strict": true, "boundaries": [1]}})",
      {.file = "f"});
  EXPECT_EQ(checked.findings.Count(Finding::Kind::kError), 5);
}

// No section at all means the ring's own 3; one that does not say, DeepSpeed's 0.
TEST(Config, ReadsWhatZeroShards) {
  EXPECT_EQ(Parse(kResNet).zero_stage, 3);
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(Parse(kResNet, {absl::StrCat("zero_optimization.stage=", stage)}).zero_stage, stage);
  }
  EXPECT_EQ(Parse(kResNet, {"zero_optimization={}"}).zero_stage, 0);
  EXPECT_EQ(Parse(kResNet, {"zero_optimization=true"}).zero_stage, 1) << "an old form";
}

// Of a run of 1,000 iterations, or as many as are given.
RunLength Measured(const std::vector<std::string>& sets, int iterations = 1000) {
  std::vector<std::string> all = {"epochs=null", absl::StrCat("iterations=", iterations)};
  all.insert(all.end(), sets.begin(), sets.end());
  absl::StatusOr<RunLength> length = MeasureRun(Parse(kResNet, all), 100000, 0);
  EXPECT_TRUE(length.ok()) << length.status();
  return length.ok() ? *std::move(length) : RunLength();
}

TEST(Config, ACyclicRuleHasAWarmupOfDpUnlessToldOtherwise) {
  const auto cosine = [](int updates) {
    return absl::StrCat(R"(scheduler={"type": "Cosine", "params": {"total_num_steps": "auto",
                                                                "warmup_num_steps": )",
                        updates, "}}");
  };
  EXPECT_EQ(Measured({}).warmup_updates, 300);
  EXPECT_EQ(Measured({}, 200).warmup_updates, 60) << "30 % of the run";
  EXPECT_EQ(Measured({cosine(400)}, 5000).warmup_updates, 400);
  EXPECT_EQ(Measured({cosine(100)}, 5000).warmup_updates, 300);
  EXPECT_EQ(Measured({cosine(400)}).warmup_updates, 300);
  EXPECT_EQ(Measured({"cyclic.warmup_updates=0"}).warmup_updates, 0);
  EXPECT_EQ(Measured({"cyclic.warmup_updates=900"}).warmup_updates, 900);
  EXPECT_EQ(Measured({"cyclic.warmup_updates=9000"}).warmup_updates, 1000);
  EXPECT_EQ(Measured({"cyclic.rule=dp"}).warmup_updates, 0);
  EXPECT_EQ(Measured({"cyclic.rule=dp"}).rule_choice, "");
  EXPECT_EQ(PlanRequestOf(Parse(kResNet), Measured({})).warmup_updates, 300);
}

TEST(Config, ACyclicRulePredictsWhereItHelps) {
  EXPECT_TRUE(Measured({}).predict) << "SGD with momentum";
  EXPECT_FALSE(Measured({"optimizer.params.momentum=0"}).predict);
  EXPECT_FALSE(Measured({"optimizer.params.nesterov=true"}).predict);
  const std::string params = "optimizer.params={\"lr\": 0.1}";
  EXPECT_TRUE(Measured({"optimizer.type=AdamW", params}).predict);
  EXPECT_FALSE(Measured({"optimizer.type=Lion", params}).predict);
  EXPECT_TRUE(Measured({"optimizer.type=Lion", params, "cyclic.predict=true"}).predict);
  EXPECT_FALSE(Measured({"cyclic.predict=false"}).predict);
  EXPECT_FALSE(Measured({R"(cyclic.predict={"factor": 0})"}).predict);
  EXPECT_FALSE(Measured({"cyclic.rule=dp"}).predict);
  EXPECT_EQ(PredictionFactor(Parse(kResNet).optimizer), 0.9) << "the momentum";
  const Config half = Parse(kResNet, {R"(cyclic.predict={"factor": 0.5})"});
  EXPECT_EQ(PredictionFactor(half.optimizer), 0.5);
  EXPECT_TRUE(half.cyclic.predict == true);
  EXPECT_EQ(Measured({}).rule_choice,
            "the first 300 of 1000 updates are of dp (the least that is chosen); what is stale is "
            "predicted, factor 0.9 (chosen by the optimizer)");
}

// Rule "auto" asks the question that the plan answers, and is planned as cyclic rules want it.
TEST(Config, RuleAutoAsksWhichRule) {
  const RunLength length = Measured({"cyclic.rule=auto"});
  ASSERT_TRUE(length.question.has_value());
  const RuleQuestion& question = *length.question;
  EXPECT_EQ(question.family, "resnet");
  EXPECT_EQ(question.optimizer, "SGD");
  EXPECT_EQ(question.batch, 192);
  EXPECT_EQ(question.links.latency, 50000);
  EXPECT_EQ(question.links.text, "links between hosts of 0.05 ms (assumed) and 3 GB/s (assumed)");
  EXPECT_EQ(question.studied.size(), ReadStudiedRules("")->size());
  const PlanRequest request = PlanRequestOf(Parse(kResNet, {"cyclic.rule=auto"}), length);
  EXPECT_TRUE(request.question.has_value());
  EXPECT_EQ(request.warmup_updates, 300);
  EXPECT_TRUE(request.predict);
  EXPECT_FALSE(Measured({}).question.has_value());

  const RunLength linked = Measured({"cyclic.rule=auto", "cyclic.transport=nccl",
                                     R"(cyclic.links={"latency": 0.02, "bandwidth": 2.5})"});
  EXPECT_EQ(linked.question->links.latency, 20000000);
  EXPECT_EQ(linked.question->links.per_byte, 0.4);
  EXPECT_EQ(linked.question->links.text,
            "links between hosts of 20 ms (cyclic.links) and 2.5 GB/s (cyclic.links)");
  EXPECT_EQ(Measured({"cyclic.rule=auto", "cyclic.transport=nccl"}).question->links.latency, 20000);
}

// With exact clipping cdp_v2 is strict, whoever chooses it.
TEST(Config, RuleAutoTakesTheKeysOfEveryRule) {
  const Config config = Parse(kResNet, {"cyclic.rule=auto", "gradient_clipping=1",
                                        "cyclic.stagger=true", "cyclic.predict=true"});
  EXPECT_FALSE(config.cyclic.rule.has_value());
  EXPECT_TRUE(config.cyclic.strict);
  EXPECT_EQ(config.cyclic.slack, 0);
  EXPECT_EQ(Parse(kResNet, {"cyclic.rule=auto", "cyclic.slack=2"}).cyclic.slack, 2);
}

// What is built in can be read, and is what the study has found.
TEST(Config, TheStudiedRulesThatAreBuiltIn) {
  const auto studied = ReadStudiedRules("");
  ASSERT_TRUE(studied.ok()) << studied.status();
  EXPECT_FALSE(studied->empty());
  for (const StudiedRule& row : *studied) {
    EXPECT_THAT(row.command, StartsWith("./rz bench rules_study"));
    EXPECT_GE(row.seeds, 2) << row.command;
    EXPECT_NE(row.rule, Rule::kDp) << row.command;
  }
}

// What a configuration of the studied text asks is answered by the rows of its warm-up and predictions.
TEST(Config, TheBuiltInRowsOfTheStudiedText) {
  const RuleQuestion question{
      .family = "gpt", .optimizer = "AdamW", .batch = 4, .studied = *ReadStudiedRules("")};
  PlanRequest request{.workers = 4, .rule = Rule::kCdpV2, .warmup_updates = 300};
  request.predict = true;
  const StudiedRule* const row = FindStudied(question, request);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->warmup_updates, 300);
  EXPECT_LT(row->most, 1.5) << "not that of predictions without a warm-up";
}

TEST(Config, AFileOfStudiedRules) {
  const std::string file = absl::StrCat(testing::TempDir(), "/studied.json");
  const auto read = [&](const std::string& text) {
    std::ofstream(file) << text;
    const auto studied = ReadStudiedRules(file);
    return studied.ok() ? absl::StrCat("read ", studied->size() - ReadStudiedRules("")->size())
                        : std::string(studied.status().message());
  };
  const auto row = [](const std::string& name, const std::string& value) {
    std::map<std::string, std::string> members = {{"family", R"("custom")"},
                                                  {"optimizer", R"("AdamW")"},
                                                  {"rule", R"("cdp_v1")"},
                                                  {"strict", "false"},
                                                  {"workers", "4"},
                                                  {"laps", "1"},
                                                  {"batch", "4"},
                                                  {"warmup_updates", "300"},
                                                  {"predict", "true"},
                                                  {"updates", "1.5"},
                                                  {"least", "1"},
                                                  {"most", "2"},
                                                  {"seeds", "3"},
                                                  {"command", R"("make it")"}};
    members[name] = value;
    std::vector<std::string> texts;
    for (const auto& [key, text] : members) {
      if (!text.empty()) texts.push_back(absl::StrCat("\"", key, "\": ", text));
    }
    return absl::StrCat("[{", absl::StrJoin(texts, ", "), "}]");
  };
  EXPECT_EQ(read("[]"), "read 0");
  EXPECT_EQ(read(row("laps", "2")), "read 1");
  EXPECT_EQ(read("{}"), absl::StrCat(file, ": wanted JSON, a list of rows as in data/rules.json"));
  EXPECT_EQ(read("[1]"), absl::StrCat(file, ": row 1: wanted an object, found 1"));
  EXPECT_EQ(
      read(row("laps", "1.5")),
      absl::StrCat(file,
                   ": row 1: \"laps\": wanted a whole number from 0 to 86400000000000, found 1.5"));
  EXPECT_EQ(read(row("most", "-1")),
            absl::StrCat(file, ": row 1: \"most\": wanted a number above 0, found -1"));
  EXPECT_EQ(read(row("predict", "1")),
            absl::StrCat(file, ": row 1: \"predict\": wanted true or false, found 1"));
  EXPECT_EQ(read(row("family", "")),
            absl::StrCat(file, ": row 1: \"family\": wanted a text, found nothing"));
  EXPECT_THAT(read(row("rule", R"("cdp")")), StartsWith(absl::StrCat(file, ": row 1: rule: ")));
  EXPECT_EQ(ReadStudiedRules("/nowhere/x.json").status().code(), absl::StatusCode::kNotFound);
  const Config config = Parse(kResNet, {"cyclic.rule=auto", "cyclic.efficiency=/nowhere/x.json"});
  EXPECT_THAT(MeasureRun(config, 100000, 0).status(),
              Fails(absl::StatusCode::kInvalidArgument,
                    "cyclic.efficiency: /nowhere/x.json: cannot read it"));
}

// A printed configuration reads back equal, with either form of cyclic.predict.
TEST(Config, PrintsWhatIsPredicted) {
  for (const char* given : {"true", "false", R"({"factor": 0.25})"}) {
    const Config config = Parse(kResNet, {absl::StrCat("cyclic.predict=", given)});
    const Config again = Parse(config.keys.Print());
    EXPECT_EQ(again.cyclic.predict, config.cyclic.predict) << given;
    EXPECT_EQ(again.optimizer.prediction_factor, config.optimizer.prediction_factor) << given;
  }
}

TEST(Config, SurvivesDamage) {
  const int rounds = std::getenv("RINGZERO_TEST_FULL") != nullptr ? 20000 : 2000;
  std::mt19937_64 random(1);
  constexpr char kBytes[] = "{}[]\",:/*\\ 0e-.\n\xff";
  for (int round = 0; round < rounds; ++round) {
    std::string text = kResNet;
    for (uint64_t edits = random() % 4 + 1; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text.erase(at, random() % 8 + 1); break;
        case 1: text.insert(at, 1, kBytes[random() % (sizeof(kBytes) - 1)]); break;
        case 2: text[at] = static_cast<char>(random()); break;
        case 3: text.insert(at, text.substr(random() % text.size(), random() % 16)); break;
      }
    }
    const absl::StatusOr<Config> config = ParseConfig(text, {.file = "run.json"});
    if (config.ok()) {
      EXPECT_TRUE(ParseConfig(config->Print(), {.file = "printed"}).ok()) << text;
    } else {
      EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << config.status();
      EXPECT_THAT(std::string(config.status().message()), StartsWith("run.json"));
    }
  }
}

TEST(Config, NamesAMissingFile) {
  const absl::StatusOr<Config> config = LoadConfig({.file = "/nowhere/run.json"});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), StartsWith("/nowhere/run.json: "));
  EXPECT_FALSE(LoadConfig({.file = "/tmp"}).ok());
}

// Sizes that would take long or much memory: refused, or read in no time.
TEST(Config, SurvivesSize) {
  const std::string long_key = "{\"" + std::string(100000, 'k') + "\": 1}";
  EXPECT_LT(Message(long_key).size(), 2000u);
  EXPECT_THAT(Message(std::string(1 << 20, '[')), HasSubstr("more than 256 KiB"));
  std::string many = "{\"optimizer\": {\"type\": \"RMSprop\", \"params\": {";
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&many, "\"p", i, "\": ", i, ", ");
  many += "}}, \"unknown\": 1}";
  const CheckedConfig checked = CheckConfig(many, {.file = "f"});
  EXPECT_NE(checked.findings.First(Finding::Kind::kError), nullptr);
  EXPECT_LT(checked.findings.all().size(), 2000u);
  std::string unknown = "{";  // each would be compared with every known key
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&unknown, "\"k", i, "\": 1, ");
  EXPECT_THAT(Message(unknown + "}"), HasSubstr("unknown key"));
  const absl::StatusOr<std::string> endless = ReadConfigFile("/dev/zero");
  ASSERT_TRUE(endless.ok()) << endless.status();
  EXPECT_THAT(Message(*endless), HasSubstr("more than 256 KiB"));
}

TEST(Config, TheEnvironmentSaysHowManyWorkers) {
  const ConfigSource source{
      .file = "run.json", .overrides = {"cyclic.workers=2"}, .environment = {"cyclic.workers=3"}};
  const absl::StatusOr<Config> config = ParseConfig(kResNet, source);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cyclic.workers, 3);
  EXPECT_EQ(config->keys.origin("cyclic.workers"), Origin::kEnvironment);
  EXPECT_THAT(config->Print(), HasSubstr("\"workers\": 3,  // environment"));
  const absl::StatusOr<Config> wrong = ParseConfig(
      kResNet, {.file = "run.json", .overrides = {}, .environment = {"cyclic.workers=0"}});
  EXPECT_THAT(std::string(wrong.status().message()),
              StartsWith("environment (cyclic.workers=0): cyclic.workers: wanted at least 1"));
}

TEST(Config, WorkersFollowTheBatch) {
  const auto workers = [](const std::string& text) {
    const CheckedConfig checked = CheckConfig(text, {.file = "f"});
    return checked.config.keys.Has("cyclic.workers") ? checked.config.keys.Integer("cyclic.workers")
                                                     : -1;
  };
  EXPECT_EQ(workers("{}"), 4);
  EXPECT_EQ(workers(R"({"train_batch_size": 64})"), 4);
  EXPECT_EQ(workers(R"({"train_batch_size": 6})"), 3);
  EXPECT_EQ(workers(R"({"train_batch_size": 1})"), 1);
  EXPECT_EQ(workers(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
                        "gradient_accumulation_steps": 2})"),
            8);
  EXPECT_EQ(workers(R"({"train_batch_size": 1, "cyclic": {"workers": 2}})"), 2);
  EXPECT_THAT(Message(R"({"train_batch_size": 1, "cyclic": {"workers": 2}})"),
              HasSubstr("train_batch_size 1 is not divisible by 2 workers"));
}

TEST(Keys, TheTableIsSound) {
  for (const KeySpec& key : AllKeys()) {
    const std::string path(key.path);
    if (!key.parent().empty()) {
      const KeySpec* parent = FindKey(key.parent());
      ASSERT_NE(parent, nullptr) << path;
      EXPECT_EQ(parent->type, KeyType::kSection) << path;
    }
    // One path stands twice only for different types of its section.
    for (const KeySpec& other : AllKeys()) {
      if (&other == &key || other.path != key.path) continue;
      ASSERT_FALSE(key.types.empty()) << path << " stands twice";
      for (const std::string& type : std::vector<std::string>(absl::StrSplit(key.types, '|'))) {
        EXPECT_FALSE(BelongsTo(other, type)) << path << " stands twice for " << type;
      }
    }
    const bool says_why = key.is_idle() || key.state == KeyState::kRemoved;
    EXPECT_EQ(says_why, !key.why.empty()) << path;
    EXPECT_EQ(key.state == KeyState::kRemoved, key.meaning.empty()) << path;
    if (key.default_json.empty()) continue;
    EXPECT_TRUE(IsBuilt(key.standard, key)) << path << ": train must take the default";
  }
}

TEST(Keys, EditDistance) {
  EXPECT_EQ(EditDistance("slack", "slack"), 0);
  EXPECT_EQ(EditDistance("slak", "slack"), 1);
  EXPECT_EQ(EditDistance("salck", "slack"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("Slack", "slack"), 0);
}

absl::string_view Word(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kError: return "error";
    case Finding::Kind::kNoEffect: return "no effect";
    case Finding::Kind::kMinor: return "no effect (minor)";
    case Finding::Kind::kOutside: return "outside";
    case Finding::Kind::kNotBuilt: return "not built";
    case Finding::Kind::kAuto: return "auto";
    case Finding::Kind::kMustSet: return "must be set";
    case Finding::Kind::kNote: return "note";
  }
  return "";
}

// Everything that is said of a configuration: X.json and, line by line, X.txt.
TEST(Findings, AreAsInTheGoldenFiles) {
  constexpr char kFolder[] = "tests/zero/golden/findings";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const absl::StatusOr<std::string> text = ReadConfigFile(file.string());
    ASSERT_TRUE(text.ok()) << text.status();
    const CheckedConfig checked = CheckConfig(*text, {.file = file.filename().string()});
    std::string said;
    for (const Finding& finding : checked.findings.all()) {
      EXPECT_EQ(finding.line.find('\n'), std::string::npos);
      absl::StrAppend(&said, Word(finding.kind), ": ", finding.line, "\n");
    }
    ExpectGolden(absl::StrCat(kFolder, "/", file.stem().string(), ".txt"), said);
  }
}

// The document that the registry writes.
TEST(Documents, AreWhatTheRegistrySays) { ExpectGolden("docs/config_keys.md", ConfigMarkdown()); }

// Names of other programs: every entry of the table is answered, and a sample means what it should.

// {"training": {"steps": 1}} for training.steps.
std::string Nested(absl::string_view path) {
  std::string text = "1";
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = names.size(); i-- > 0;) text = absl::StrCat("{\"", names[i], "\": ", text, "}");
  return text;
}

std::string AnswerTo(const std::string& text) {
  const ConfigSource source{.file = "f"};
  std::string lines;
  const CheckedConfig checked = CheckConfig(text, source);
  for (const Finding& finding : checked.findings.all()) {
    absl::StrAppend(&lines, finding.line, "\n");
  }
  return lines;
}

TEST(ForeignNames, EachIsAnsweredWithAKeyOrAdvice) {
  std::set<absl::string_view> names;
  for (const ForeignName& foreign : ForeignNames()) {
    SCOPED_TRACE(foreign.name);
    EXPECT_TRUE(names.insert(foreign.name).second) << "stands twice";
    const KeySpec* ours = FindKey(foreign.name);
    EXPECT_TRUE(ours == nullptr || ours->type == KeyType::kSection) << "is a key of ours";
    if (foreign.key.empty()) {
      EXPECT_FALSE(foreign.hint.empty());
    } else {
      const KeySpec* key = FindKey(foreign.key);
      ASSERT_NE(key, nullptr) << foreign.key;
      EXPECT_TRUE(key->state == KeyState::kWorks || key->is_idle());
    }
    const std::string answer = AnswerTo(Nested(foreign.name));
    EXPECT_THAT(answer, HasSubstr(absl::StrCat(": ", foreign.name, ": ")));
    EXPECT_THAT(answer, HasSubstr(ToString(foreign)));
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(ForeignNames, AreWhatTheirProgramsMean) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"max_steps", "HuggingFace's max_steps is iterations here"},
      {"n_layer", "nanoGPT's n_layer is model.layers here"},
      {"n_embd", "nanoGPT's n_embd is model.dim here"},
      {"training.steps", "torchtitan's training.steps is iterations here"},
      {"logging_steps", "HuggingFace's logging_steps is steps_per_print here"},
      {"save_steps", "HuggingFace's save_steps is cyclic.checkpoint.every here"},
      {"micro_batch_size", "Megatron's micro_batch_size is train_micro_batch_size_per_gpu here"},
      {"batch_size", "train_micro_batch_size_per_gpu here (train_batch_size is that of an update)"},
      {"lr-decay-iters", "is scheduler.params.total_num_steps here"},
      {"optimizer.name", "torchtitan's optimizer.name is optimizer.type here"},
      {"optimizer.beta2", "is optimizer.params.betas here (a list)"},
      {"model.n_head", "is model.heads here"},
      {"seq_length", "is model.seq here"},
      {"bf16", "wanted an object, found 1; HuggingFace's bf16 is bf16.enabled here"},
      {"learnig_rate", "the nearest known one is optimizer.params.lr"},
  };
  for (const auto& [name, answer] : expected) {
    EXPECT_THAT(AnswerTo(Nested(name)), HasSubstr(answer)) << name;
  }
  EXPECT_THAT(AnswerTo(R"({"training.steps": 1})"), HasSubstr("is iterations here"));
  EXPECT_THAT(AnswerTo(R"({"training": {"steps": 1, "max_norm": 1}})"),
              AllOf(HasSubstr("is iterations here"), HasSubstr("is gradient_clipping here")))
      << "each name of a section is answered";
  EXPECT_THAT(AnswerTo(R"({"training": {}})"), HasSubstr("training: unknown key"));
}

}  // namespace
}  // namespace ringzero
