// "rule": "auto": from studied cases, costs and links to a rule. The figures that a choice rests on are
// golden: whoever changes the simulation sees what it does to them.
#include "zero/rule_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"
#include "zero/model_plan.h"

namespace ringzero {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

StudiedRule Studied(Rule rule, double most) {
  return {.family = "gpt",
          .optimizer = "AdamW",
          .rule = rule,
          .workers = 4,
          .laps = 1,
          .batch = 32,
          .warmup_updates = 300,
          .predict = true,
          .updates = 1.02,
          .least = 1,
          .most = most,
          .seeds = 5,
          .command = "./rz bench some_study"};
}

ModelDescription EightLayers() {
  ModelDescription model;
  for (int i = 0; i < 8; ++i) {
    model.layers.push_back(
        {.name = "l" + std::to_string(i),
         .parameters = {{.name = "l" + std::to_string(i) + ".weight", .shape = {1000, 1000}}},
         .cost = {.forward = 20'000'000, .backward = 40'000'000}});
  }
  return model;
}

// Four workers on one host each, 20 ms apart.
PlanRequest Asked() {
  PlanRequest request{.workers = 4, .laps = 1, .rule = Rule::kCdpV2, .warmup_updates = 300};
  request.predict = true;
  request.micro_batch = 8;
  request.iterations = 1000;
  request.question =
      RuleQuestion{.family = "gpt",
                   .optimizer = "AdamW",
                   .batch = 32,
                   .studied = {Studied(Rule::kCdpV1, 1.05), Studied(Rule::kCdpV2, 1.04)},
                   .links = {.latency = 20'000'000, .per_byte = 0.8, .text = "slow links"}};
  return request;
}

PlannedModel Planned(const PlanRequest& request) {
  absl::StatusOr<PlannedModel> planned = PlanModel(EightLayers(), request);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return planned.ok() ? *std::move(planned) : PlannedModel();
}

TEST(RuleChoice, TwoCoresOfOneHostGiveDp) {
  PlanRequest request = Asked();
  request.hosts = {4};
  request.question->links.hosts = {4};
  request.question->cores = 2;
  const PlannedModel planned = Planned(request);
  EXPECT_EQ(planned.plan.rule, Rule::kDp);
  EXPECT_EQ(planned.plan.warmup_updates, 0);
  EXPECT_FALSE(planned.plan.predict);
  EXPECT_EQ(
      planned.rule_choice,
      "rule auto: dp, as no other is known to be faster by 2 % or more; from counted costs at "
      "50 GFLOP/s and 10 GB/s (assumed), 2 cores in all, one host\n"
      "  dp      step 187.2 ms x 1.000 updates = 1.000 of dp's time\n"
      "  cdp_v1  step 184 ms x 1.050 updates = 1.032 of dp's time (mean 1.020, 5 seeds: ./rz "
      "bench some_study)\n"
      "  cdp_v2  step 184 ms x 1.040 updates = 1.022 of dp's time (mean 1.020, 5 seeds: ./rz "
      "bench some_study)");
}

TEST(RuleChoice, LatencyBetweenHostsGivesACyclicRuleWithPrediction) {
  const PlannedModel planned = Planned(Asked());
  EXPECT_EQ(planned.plan.rule, Rule::kCdpV1);
  EXPECT_EQ(planned.plan.warmup_updates, 300);
  EXPECT_TRUE(planned.plan.predict);
  EXPECT_EQ(
      planned.rule_choice,
      "rule auto: cdp_v1, which comes to dp's loss first; from counted costs at 50 GFLOP/s and "
      "10 GB/s (assumed), a core for each worker, slow links\n"
      "  dp      step 232 ms x 1.000 updates = 1.000 of dp's time\n"
      "  cdp_v1  step 122.2 ms x 1.050 updates = 0.553 of dp's time (mean 1.020, 5 seeds: ./rz "
      "bench some_study)\n"
      "  cdp_v2  step 150 ms x 1.040 updates = 0.672 of dp's time (mean 1.020, 5 seeds: ./rz "
      "bench some_study)");
}

// What was not studied is not chosen, however fast it would be.
TEST(RuleChoice, WhatIsNotStudiedIsSaid) {
  PlanRequest request = Asked();
  request.question->studied.clear();
  const PlannedModel planned = Planned(request);
  EXPECT_EQ(planned.plan.rule, Rule::kDp);
  EXPECT_THAT(planned.rule_choice, StartsWith("rule auto: dp, as no other is known to be faster"));
  for (const char* rule : {"cdp_v1", "cdp_v2"}) {
    EXPECT_THAT(planned.rule_choice,
                HasSubstr(std::string(rule) +
                          "  not measured for gpt, AdamW, N = 4, K = 1, 32 samples an update, a "
                          "warm-up of 300 updates, with predictions"));
  }
}

// More updates than the faster steps bring in: dp.
TEST(RuleChoice, UpdatesCountByTheWorseEnd) {
  PlanRequest request = Asked();
  request.question->studied = {Studied(Rule::kCdpV1, 9), Studied(Rule::kCdpV2, 9)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kDp);
  request.question->studied = {Studied(Rule::kCdpV1, 1.05), Studied(Rule::kCdpV2, 9)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kCdpV1);
}

// A rule that gains less than 2 % is not worth it: with a core for each worker and no latency, both
// cyclic rules gain something, and studied updates decide how much is left.
TEST(RuleChoice, ASmallGainIsNone) {
  PlanRequest request = Asked();
  request.question->links = {};
  request.question->studied = {Studied(Rule::kCdpV1, 1.02)};
  const PlannedModel fast = Planned(request);
  ASSERT_EQ(fast.plan.rule, Rule::kCdpV1);
  const size_t at = fast.rule_choice.find("= 0.", fast.rule_choice.find("cdp_v1"));
  ASSERT_NE(at, std::string::npos) << fast.rule_choice;
  const double of_dp = std::stod(fast.rule_choice.substr(at + 2));
  request.question->studied = {Studied(Rule::kCdpV1, 1.02 * 0.975 / of_dp)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kCdpV1);
  request.question->studied = {Studied(Rule::kCdpV1, 1.02 * 0.985 / of_dp)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kDp);
}

TEST(RuleChoice, ARowCoversWithinAFactorOfTwo) {
  const PlanRequest request = Asked();
  const auto covers = [&](auto change) {
    RuleQuestion question = *request.question;
    question.studied = {Studied(Rule::kCdpV2, 1.04)};
    change(question.studied[0]);
    return FindStudied(question, request) != nullptr;
  };
  EXPECT_TRUE(covers([](StudiedRule&) {}));
  EXPECT_TRUE(covers([](StudiedRule& row) { row.workers = 8, row.laps = 2, row.batch = 64; }));
  EXPECT_TRUE(covers([](StudiedRule& row) { row.workers = 2, row.batch = 16; }));
  EXPECT_TRUE(covers([](StudiedRule& row) { row.warmup_updates = 100; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.warmup_updates = 301; })) << "a shorter warm-up";
  EXPECT_FALSE(covers([](StudiedRule& row) { row.workers = 9; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.workers = 1; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.laps = 3; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.batch = 15; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.family = "resnet"; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.optimizer = "Muon"; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.strict = true; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.predict = false; }));
  EXPECT_FALSE(covers([](StudiedRule& row) { row.rule = Rule::kCdpV1; }));
}

TEST(RuleChoice, TheWorstOfSeveralRowsCounts) {
  RuleQuestion question = *Asked().question;
  question.studied = {Studied(Rule::kCdpV2, 1.04), Studied(Rule::kCdpV2, 1.3),
                      Studied(Rule::kCdpV2, 1.1)};
  EXPECT_EQ(FindStudied(question, Asked())->most, 1.3);
}

// What only cyclic rules have does not stand in the way of dp, nor strict reads in that of cdp_v1.
TEST(RuleChoice, EachRuleIsPlannedWithoutWhatOnlyOthersHave) {
  PlanRequest request = Asked();
  request.stagger = true;
  request.strict = true;
  request.slack = 0;
  request.clipping = Clipping::kExact;
  request.question->studied.clear();
  EXPECT_EQ(Planned(request).plan.rule, Rule::kDp);
  request.question->studied = {Studied(Rule::kCdpV1, 0.01)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kCdpV1);
  request.question->studied = {Studied(Rule::kCdpV2, 0.01)};
  EXPECT_EQ(Planned(request).plan.rule, Rule::kDp) << "the row is not of strict reads";
  request.question->studied[0].strict = true;
  EXPECT_TRUE(Planned(request).plan.strict);
}

// Two slots are enough for dp, and too few for cdp_v1.
TEST(RuleChoice, ARuleThatCannotBePlannedIsSaidAndNotChosen) {
  PlanRequest request = Asked();
  request.laps = 2;
  request.stages = 8;
  request.window = 2;
  const PlannedModel planned = Planned(request);
  EXPECT_EQ(planned.plan.rule, Rule::kDp);
  EXPECT_THAT(planned.rule_choice, HasSubstr("cdp_v1  cannot be planned: "));
}

// A run that is asked for with the built-in table, and a longer warm-up than some of its rows.
TEST(RuleChoice, TheRowsWithTheLongestWarmupCount) {
  RuleQuestion question = *Asked().question;
  StudiedRule without = Studied(Rule::kCdpV2, 4);
  without.warmup_updates = 0;
  question.studied = {without, Studied(Rule::kCdpV2, 1.1), without};
  EXPECT_EQ(FindStudied(question, Asked())->most, 1.1);
  PlanRequest shorter = Asked();
  shorter.warmup_updates = 200;
  EXPECT_EQ(FindStudied(question, shorter)->most, 4);
}

TEST(RuleChoice, WhatDpCannotDoIsAnError) {
  PlanRequest request = Asked();
  request.stages = 9;
  EXPECT_THAT(PlanModel(EightLayers(), request).status(),
              Fails(absl::StatusCode::kInvalidArgument, "stages must be 1 to 8"));
}

}  // namespace
}  // namespace ringzero
