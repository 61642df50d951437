// SGD and Adagrad against their formulas in double (the others: phased_updates_test.cc and, against
// torch itself, optimizer_torch_test.cc), and what must stay when nothing contributed.
#include "zero/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "tests/support/status_matchers.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer_options.h"

namespace ringzero {
namespace {

class OptimizerTest : public testing::Test {
 protected:
  // One parameter of `numel` values and a frozen one.
  explicit OptimizerTest(int64_t numel = 200000)
      : layout_(StageLayout::Make(
            {{.name = "w", .shape = {numel}}, {.name = "frozen", .shape = {7}, .trainable = false}},
            {})),
        theta_(MakeHeapBuffer(layout_.parameter_bytes)),
        sum_(MakeHeapBuffer(layout_.sum_bytes)) {
    StartSum(layout_, sum_.data());
    std::vector<float> gradient(numel);
    for (int64_t i = 0; i < numel; ++i) {
      theta_.as<float>()[i] = std::sin(float(i));
      gradient[i] = std::cos(float(3 * i));
    }
    const int64_t frozen = layout_.parameters[1].offset_bytes / 4;
    for (int i = 0; i < 7; ++i) theta_.as<float>()[frozen + i] = 0.5f + i;
    AddContribution(layout_, 0, {gradient.data()}, {}, sum_.data());
  }

  UpdateInput Input(double divisor = 4) const {
    return {.divisor = divisor, .theta = theta_.data(), .sum = sum_.data()};
  }
  double G(int64_t i, double divisor = 4) const { return double(sum_.as<float>()[i]) / divisor; }

  StageLayout layout_;
  Buffer theta_, sum_;
};

TEST_F(OptimizerTest, SgdWithMomentumAndDecay) {
  OptimizerOptions options{.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.1};
  options.sgd = {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01};
  StageOptimizer optimizer(options, layout_);
  Buffer one = MakeHeapBuffer(layout_.parameter_bytes);
  Buffer two = MakeHeapBuffer(layout_.parameter_bytes);
  optimizer.Update(Input(), one.data());
  optimizer.Update({.divisor = 4, .theta = one.data(), .sum = sum_.data()}, two.data());
  for (const int64_t i : {0, 1, 65535, 65536, 199999}) {
    const double theta = theta_.as<float>()[i];
    const double first = G(i) + 0.01 * theta;
    const double after = theta - 0.1 * first;
    EXPECT_NEAR(one.as<float>()[i], after, 2e-7);
    const double second = 0.9 * first + 0.75 * (G(i) + 0.01 * after);
    EXPECT_NEAR(two.as<float>()[i], after - 0.1 * second, 3e-7);
  }
}

TEST_F(OptimizerTest, BlocksInAnyOrderGiveTheSameBits) {
  const OptimizerOptions options{};
  StageOptimizer forward(options, layout_), backward(options, layout_);
  Buffer a = MakeHeapBuffer(layout_.parameter_bytes), b = MakeHeapBuffer(layout_.parameter_bytes);
  forward.Update(Input(), a.data());
  backward.Begin(Input());
  ASSERT_GT(backward.blocks().size(), 3u);
  for (auto block = backward.blocks().rbegin(); block != backward.blocks().rend(); ++block) {
    backward.Block(*block, Input(), b.data());
  }
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0);
}

TEST_F(OptimizerTest, SquaresAreThoseOfWhatContributed) {
  StageOptimizer optimizer({}, layout_);
  const UpdateInput input = Input();
  optimizer.Begin(input);
  double counted = 0, wanted = 0;
  for (const UpdateBlock& block : optimizer.blocks()) {
    counted += optimizer.SumOfSquares(block, input);
  }
  for (const ParameterSpec& spec : layout_.parameters) {
    if (!spec.trainable || !HasContribution(layout_, input.sum, spec.sum_index)) continue;
    const auto* values = reinterpret_cast<const float*>(input.sum + spec.sum_offset_bytes);
    for (int64_t i = 0; i < spec.numel; ++i) wanted += double{values[i]} * double{values[i]};
  }
  EXPECT_GT(wanted, 0);
  EXPECT_NEAR(counted, wanted, 1e-12 * wanted);
}

TEST_F(OptimizerTest, FrozenAndUnusedParametersAreCarriedOver) {
  StageOptimizer optimizer({}, layout_);
  Buffer out = MakeHeapBuffer(layout_.parameter_bytes);
  StartSum(layout_, sum_.data());  // no contribution in this iteration
  optimizer.Update(Input(), out.data());
  EXPECT_EQ(std::memcmp(out.data(), theta_.data(), out.size()), 0);
}

TEST_F(OptimizerTest, AnIterationWithoutAGradientDoesNotCount) {
  StageOptimizer skipped({}, layout_), straight({}, layout_);
  Buffer a = MakeHeapBuffer(layout_.parameter_bytes), b = MakeHeapBuffer(layout_.parameter_bytes);
  Buffer none = MakeHeapBuffer(layout_.sum_bytes);
  StartSum(layout_, none.data());
  skipped.Update({.divisor = 4, .theta = theta_.data(), .sum = none.data()}, a.data());
  skipped.Update({.divisor = 4, .theta = a.data(), .sum = sum_.data()}, a.data());
  straight.Update(Input(), b.data());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0);
}

// Each iteration at its own rate, whatever came before: a restart needs only the number.
TEST_F(OptimizerTest, TheRateIsThatOfTheIterationsNumber) {
  OptimizerOptions options{.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.1};
  options.curve = {.type = RateCurve::Type::kWarmup,
                   .warmup = {.min_rate = 0.01, .updates = 10, .ramp = RateCurve::Ramp::kLinear}};
  Buffer curved = MakeHeapBuffer(layout_.parameter_bytes);
  Buffer plain = MakeHeapBuffer(layout_.parameter_bytes);
  for (const int64_t iteration : {7, 0, 3, 200}) {
    OptimizerOptions constant = options;
    constant.curve = {};
    constant.learning_rate = RateAt(options.curve, 0.1, iteration).rate;
    UpdateInput input = Input();
    StageOptimizer(constant, layout_).Update(input, plain.data());
    input.iteration = iteration;
    StageOptimizer(options, layout_).Update(input, curved.data());
    EXPECT_EQ(std::memcmp(curved.data(), plain.data(), plain.size()), 0) << iteration;
  }
  EXPECT_EQ(RateAt(options.curve, 0.1, 0).rate, 0.01);
  EXPECT_EQ(RateAt(options.curve, 0.1, 1).rate, 0.01);
  EXPECT_GT(RateAt(options.curve, 0.1, 2).rate, 0.01);
}

TEST(RateCurveTest, PhasesWarmUpStayAndDecay) {
  RateCurve curve{.type = RateCurve::Type::kPhases};
  curve.phases = {.warmup_updates = 4, .decay_updates = 10, .total_updates = 30, .min_ratio = 0.1};
  const auto rate = [&](int64_t update) { return RateAt(curve, 2.0, update).rate; };
  EXPECT_EQ(rate(0), 0.5);
  EXPECT_EQ(rate(3), 2.0);
  EXPECT_EQ(rate(20), 2.0);
  EXPECT_DOUBLE_EQ(rate(25), 2.0 * (0.1 + 0.9 * 0.5));  // half of a cosine
  EXPECT_DOUBLE_EQ(rate(30), 0.2);
  EXPECT_DOUBLE_EQ(rate(1000), 0.2);
  curve.phases.decay = RateCurve::Phases::Decay::kLinear;
  EXPECT_DOUBLE_EQ(rate(24), 2.0 * (0.1 + 0.9 * 0.6));
  curve.phases.decay = RateCurve::Phases::Decay::kRoot;
  EXPECT_DOUBLE_EQ(rate(24), 2.0 * (0.1 + 0.9 * (1 - std::sqrt(0.4))));
  // Without a stable phase: a cosine from the end of the warm-up.
  curve.phases = {.warmup_updates = 10, .decay_updates = 90, .total_updates = 100};
  EXPECT_DOUBLE_EQ(rate(9), 2.0);
  EXPECT_DOUBLE_EQ(rate(55), 1.0);
  EXPECT_NEAR(rate(100), 0, 1e-15);
}

TEST_F(OptimizerTest, OneCycleChangesTheBetas) {
  OptimizerOptions options{.learning_rate = 0.1};
  options.curve.type = RateCurve::Type::kOneCycle;
  options.curve.one_cycle = {.min_rate = 0.01, .max_rate = 0.2, .first_updates = 4};
  const UpdateRate at = RateAt(options.curve, 0.1, 3);
  OptimizerOptions constant{.learning_rate = at.rate};
  constant.adamw.beta1 = at.betas->beta1;
  constant.adamw.beta2 = at.betas->beta2;
  Buffer curved = MakeHeapBuffer(layout_.parameter_bytes);
  Buffer plain = MakeHeapBuffer(layout_.parameter_bytes);
  UpdateInput input = Input();
  StageOptimizer(constant, layout_).Update(input, plain.data());
  input.iteration = 3;
  StageOptimizer(options, layout_).Update(input, curved.data());
  EXPECT_EQ(std::memcmp(curved.data(), plain.data(), plain.size()), 0);
  EXPECT_NE(at.betas->beta1, options.adamw.beta1);
}

// A rule from outside of the engine: momentum's sign.
struct SignMomentum {
  static constexpr std::array<const char*, 1> kStates = {"momentum"};
  float beta = 0.9f;
  float operator()(const UpdateMoment& at, float theta, float gradient,
                   std::array<float, 1>& state) const {
    state[0] = beta * state[0] + (1 - beta) * gradient;
    return theta - static_cast<float>(at.rate) * std::copysign(1.0f, state[0]);
  }
};

TEST_F(OptimizerTest, ARuleOfOnesOwn) {
  OptimizerOptions options{.type = OptimizerOptions::Type::kCustom, .learning_rate = 0.25};
  options.custom = MakeElementwise(SignMomentum{.beta = 0.5f});
  ASSERT_TRUE(CheckOptimizer(options).ok());
  StageOptimizer optimizer(options, layout_);
  Buffer out = MakeHeapBuffer(layout_.parameter_bytes);
  optimizer.Update(Input(), out.data());
  for (const int64_t i : {0, 2, 65536, 199999}) {
    const float g = sum_.as<float>()[i] / 4;
    EXPECT_EQ(optimizer.state(0).first[i], 0.5f * g);
    EXPECT_EQ(out.as<float>()[i], theta_.as<float>()[i] - std::copysign(0.25f, g)) << i;
  }
  EXPECT_TRUE(optimizer.state(0).second.empty());
  EXPECT_EQ(MomentBytes(options, {layout_})[0], 200000 * 4);
  const StateLayout states = StateLayout::Make(options, layout_);
  ASSERT_EQ(states.specs.size(), 2u);
  EXPECT_EQ(states.specs[1].name, "momentum");
}

TEST_F(OptimizerTest, AStateMayBeginElsewhere) {
  OptimizerOptions options{.type = OptimizerOptions::Type::kAdagrad, .learning_rate = 0.1};
  options.adagrad = {.rate_decay = 1, .initial_accumulator = 0.5};
  StageOptimizer optimizer(options, layout_);
  EXPECT_EQ(optimizer.state(0).first[199999], 0.5f);
  Buffer now = MakeHeapBuffer(layout_.parameter_bytes);
  std::memcpy(now.data(), theta_.data(), theta_.size());
  double theta = theta_.as<float>()[77], squares = 0.5;
  for (int t = 1; t <= 3; ++t) {
    optimizer.Update({.divisor = 4, .theta = now.data(), .sum = sum_.data()}, now.data());
    squares += G(77) * G(77);
    theta -= 0.1 / t * G(77) / (std::sqrt(squares) + 1e-10);
    EXPECT_NEAR(now.as<float>()[77], theta, 1e-6) << t;
  }
}

TEST(ParameterGroupsTest, TheFirstPatternThatMatchesCounts) {
  OptimizerOptions options{.learning_rate = 0.5};
  options.adamw.weight_decay = 0.1;
  options.decays = OptimizerOptions::Decays::kMatrices;
  options.groups = {{.pattern = "embed.*", .rate_factor = 0.25},
                    {.pattern = "*.bias", .weight_decay = 0.3},
                    {.pattern = "*", .betas = UpdateRate::Betas{0.5, 0.6}}};
  const ParameterSpec embedding{.name = "embed.weight", .shape = {8, 4}};
  const ParameterSpec bias{.name = "layer.bias", .shape = {4}};
  const ParameterSpec norm{.name = "layer.norm", .shape = {4}};
  EXPECT_EQ(OptionsFor(options, embedding).rate_factor, 0.25);
  EXPECT_EQ(OptionsFor(options, embedding).adamw.weight_decay, 0.1);
  EXPECT_EQ(OptionsFor(options, embedding).adamw.beta1, 0.9);
  EXPECT_EQ(OptionsFor(options, bias).adamw.weight_decay, 0.3);
  EXPECT_EQ(OptionsFor(options, norm).adamw.weight_decay, 0);
  EXPECT_EQ(OptionsFor(options, norm).adamw.beta2, 0.6);
  const StageLayout layout = StageLayout::Make({embedding, bias, norm}, {});
  EXPECT_TRUE(CheckGroups(options, {layout}).ok());
  options.groups.push_back({.pattern = "head.*"});
  EXPECT_THAT(CheckGroups(options, {layout}),
              Says("parameter group \"head.*\" matches no parameter"));
  options.groups = {{.pattern = "*", .betas = UpdateRate::Betas{1.5, 0.6}}};
  EXPECT_THAT(CheckGroups(options, {layout}), Says("betas[0]"));
  options.type = OptimizerOptions::Type::kSgd;
  EXPECT_THAT(CheckGroups(options, {layout}), Says("has none"));
}

// Each parameter as if it were alone with its group's numbers.
TEST(ParameterGroupsTest, EachParameterIsUpdatedWithItsOwn) {
  OptimizerOptions options{.learning_rate = 0.01};
  options.groups = {{.pattern = "slow", .rate_factor = 0.5, .weight_decay = 0.2}};
  const StageLayout both =
      StageLayout::Make({{.name = "fast", .shape = {40}}, {.name = "slow", .shape = {40}}}, {});
  Buffer theta = MakeHeapBuffer(both.parameter_bytes), sum = MakeHeapBuffer(both.sum_bytes);
  StartSum(both, sum.data());
  const std::vector<float> gradient(40, 0.75f);
  for (int p = 0; p < 2; ++p) {
    std::fill_n(theta.as<float>().begin() + both.parameters[p].offset_bytes / 4, 40, 2.0f);
    AddContribution(both, p, {gradient.data()}, {}, sum.data());
  }
  StageOptimizer(options, both).Update({.theta = theta.data(), .sum = sum.data()}, theta.data());
  OptimizerOptions slow{.learning_rate = 0.005};
  slow.adamw.weight_decay = 0.2;
  for (int p = 0; p < 2; ++p) {
    const StageLayout alone = StageLayout::Make({{.name = "alone", .shape = {40}}}, {});
    Buffer value = MakeHeapBuffer(alone.parameter_bytes), its = MakeHeapBuffer(alone.sum_bytes);
    StartSum(alone, its.data());
    std::fill_n(value.as<float>().begin(), 40, 2.0f);
    AddContribution(alone, 0, {gradient.data()}, {}, its.data());
    const OptimizerOptions own = p == 0 ? OptimizerOptions{.learning_rate = 0.01} : slow;
    StageOptimizer(own, alone).Update({.theta = value.data(), .sum = its.data()}, value.data());
    EXPECT_EQ(std::memcmp(value.data(), theta.data() + both.parameters[p].offset_bytes, 160), 0)
        << p;
  }
}

TEST(CheckOptimizerTest, NamesTheKey) {
  using Options = OptimizerOptions;
  struct Case {
    std::function<void(Options&)> change;
    std::string words;
  };
  const std::vector<Case> cases = {
      {[](Options& o) { o.type = Options::Type::kCustom; }, "custom"},
      {[](Options& o) { o.type = Options::Type::kLion, o.lion.beta1 = -1; }, "betas[0]"},
      {[](Options& o) { o.type = Options::Type::kAdagrad, o.adagrad.rate_decay = -1; }, "lr_decay"},
      {[](Options& o) { o.learning_rate = -1; }, "optimizer.params.lr"},
      {[](Options& o) { o.type = Options::Type::kSgd, o.sgd.nesterov = SgdOptions::Nesterov::kOn; },
       "nesterov"},
      {[](Options& o) { o.adamw.beta2 = 1; }, "betas[1]"},
      {[](Options& o) { o.type = Options::Type::kLamb, o.lamb.max_ratio = 0.001; },
       "optimizer.params.max_coeff must be at least min_coeff, 0.01, found 0.001"},
      {[](Options& o) { o.type = Options::Type::kMuon, o.muon.momentum = 1; },
       "optimizer.params.momentum must be in [0, 1), found 1"}};
  for (const Case& each : cases) {
    Options options;
    each.change(options);
    EXPECT_THAT(CheckOptimizer(options), Says(each.words));
  }
}

}  // namespace
}  // namespace ringzero
