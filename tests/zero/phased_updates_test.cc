// LAMB against its formulas in double (Muon: optimizer_torch_test.cc), and that neither blocks, nor
// neighbours, nor how a matrix is stored, change a bit of either.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "tests/support/status_matchers.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer.h"
#include "zero/optimizer/optimizer_options.h"

namespace ringzero {
namespace {

using Type = OptimizerOptions::Type;

std::vector<float> Random(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Some parameters under one optimizer.
struct Stage {
  Stage(const OptimizerOptions& options, std::vector<ParameterSpec> parameters)
      : layout(StageLayout::Make(std::move(parameters), {})),
        theta(MakeHeapBuffer(layout.parameter_bytes)),
        sum(MakeHeapBuffer(layout.sum_bytes)),
        optimizer(options, layout) {
    StartSum(layout, sum.data());
  }
  void Set(int parameter, const std::vector<float>& values, const std::vector<float>& gradient) {
    std::memcpy(theta.data() + layout.parameters[parameter].offset_bytes, values.data(),
                values.size() * sizeof(float));
    AddContribution(layout, parameter, {gradient.data()}, {}, sum.data());
  }
  void Update() { optimizer.Update({.theta = theta.data(), .sum = sum.data()}, theta.data()); }
  std::vector<float> Values(int parameter) const {
    const ParameterSpec& spec = layout.parameters[parameter];
    const auto* from = reinterpret_cast<const float*>(theta.data() + spec.offset_bytes);
    return {from, from + spec.numel};
  }
  StageLayout layout;
  Buffer theta, sum;
  StageOptimizer optimizer;
};

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// The paper's and FusedLamb's (csrc/lamb/fused_lamb_cuda_kernel.cu): there the rate is corrected, not
// the moments.
TEST(LambTest, IsDeepSpeedsUnlessThePapersIsAskedFor) {
  for (const UpdateForm form : {UpdateForm::kDeepSpeed, UpdateForm::kPaper}) {
    SCOPED_TRACE(form == UpdateForm::kPaper ? "paper" : "DeepSpeed");
    OptimizerOptions options{.type = Type::kLamb, .learning_rate = 0.01};
    options.lamb.weight_decay = 0.1;
    if (form == UpdateForm::kPaper) options.lamb.form = form;
    constexpr int64_t kValues = 150000;  // three blocks
    const std::vector<float> initial = Random(kValues, 1), gradient = Random(kValues, 2);
    Stage stage(options, {{.name = "w", .shape = {kValues}}});
    stage.Set(0, initial, gradient);
    std::vector<double> theta(initial.begin(), initial.end()), m(kValues), v(kValues), u(kValues);
    for (int t = 1; t <= 3; ++t) {
      stage.Update();
      const double start1 = 1 - std::pow(0.9, t), start2 = 1 - std::pow(0.999, t);
      const bool paper = form == UpdateForm::kPaper;
      for (int64_t i = 0; i < kValues; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * gradient[i];
        v[i] = 0.999 * v[i] + 0.001 * gradient[i] * gradient[i];
        u[i] = paper ? m[i] / start1 / (std::sqrt(v[i] / start2) + 1e-8)
                     : m[i] / (std::sqrt(v[i]) + 1e-8);
        u[i] += 0.1 * theta[i];
      }
      const double rate = paper ? 0.01 : 0.01 * std::sqrt(start2) / start1;
      const double ratio = Norm(theta) / Norm(u);
      for (int64_t i = 0; i < kValues; ++i) theta[i] -= rate * ratio * u[i];
      const std::vector<float> found = stage.Values(0);
      for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(found[i], theta[i], 2e-6) << t << " " << i;
    }
  }
}

TEST(LambTest, TheRatioIsCutAndOneWhereANormIsZero) {
  OptimizerOptions options{.type = Type::kLamb, .learning_rate = 0.5};
  options.lamb.form = UpdateForm::kPaper;
  options.lamb.max_ratio = 2;
  const auto moved = [&](float theta) {
    Stage stage(options, {{.name = "w", .shape = {4}}});
    stage.Set(0, std::vector<float>(4, theta), std::vector<float>(4, 3.0f));
    stage.Update();
    return theta - stage.Values(0)[0];
  };
  EXPECT_NEAR(moved(1.5f), 0.5 * 1.5, 1e-6);  // the update is 1 everywhere
  EXPECT_NEAR(moved(100.0f), 0.5 * 2, 1e-5);
  EXPECT_NEAR(moved(0.001f), 0.5 * 0.01, 1e-6);
  EXPECT_NEAR(moved(0.0f), 0.5, 1e-6);
}

// Stored by columns, or as a convolution's outputs by the rest.
TEST(MuonTest, AMatrixIsWhatItsShapeSays) {
  const OptimizerOptions options{.type = Type::kMuon, .learning_rate = 0.1};
  constexpr int kRows = 24, kColumns = 36;
  const std::vector<float> initial = Random(kRows * kColumns, 1);
  const std::vector<float> gradient = Random(kRows * kColumns, 2);
  const auto turned = [](const std::vector<float>& values) {
    std::vector<float> out(values.size());
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) out[j * kRows + i] = values[i * kColumns + j];
    }
    return out;
  };
  Stage plain(options, {{.name = "w", .shape = {kRows, kColumns}}});
  Stage columns(options, {{.name = "w", .shape = {kRows, kColumns}, .strides = {1, kRows}}});
  Stage convolution(options, {{.name = "w", .shape = {kRows, 4, 3, 3}}});
  plain.Set(0, initial, gradient);
  columns.Set(0, turned(initial), turned(gradient));
  convolution.Set(0, initial, gradient);
  for (Stage* stage : {&plain, &columns, &convolution}) stage->Update();
  EXPECT_EQ(columns.Values(0), turned(plain.Values(0)));
  EXPECT_EQ(convolution.Values(0), plain.Values(0));
}

TEST(MuonTest, TheRestHasAdamW) {
  OptimizerOptions options{.type = Type::kMuon, .learning_rate = 0.02};
  options.muon.rest_factor = 0.25;
  options.adamw = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-10, .weight_decay = 0.1};
  OptimizerOptions adamw = options;
  adamw.type = Type::kAdamW;
  adamw.learning_rate = 0.005;
  const std::vector<ParameterSpec> rest = {{.name = "Embed.weight", .shape = {4, 3}},
                                           {.name = "model.lm_head.weight", .shape = {4, 3}},
                                           {.name = "head.weight", .shape = {4, 3}},
                                           {.name = "norm.weight", .shape = {12}}};
  Stage ours(options, rest), theirs(adamw, rest);
  for (int p = 0; p < 4; ++p) {
    ours.Set(p, Random(12, p), Random(12, 10 + p));
    theirs.Set(p, Random(12, p), Random(12, 10 + p));
  }
  ours.Update();
  theirs.Update();
  for (int p = 0; p < 4; ++p) EXPECT_EQ(ours.Values(p), theirs.Values(p)) << p;
  const ParameterSpec matrix{.name = "block.qkv", .shape = {4, 3}};
  const StageLayout layout = StageLayout::Make({matrix, rest[0]}, {});
  const StateLayout states = StateLayout::Make(options, layout);
  ASSERT_EQ(states.specs.size(), 5u);
  EXPECT_EQ(states.specs[1].name, "momentum_buffer");
  EXPECT_EQ(states.specs[4].name, "exp_avg_sq");
  EXPECT_EQ(MomentBytes(options, {layout})[0], 3 * 64) << "12 values each, to whole cache lines";
  EXPECT_EQ(ScratchBytes(options, {layout})[0], StageOptimizer(options, layout).scratch_bytes());
  EXPECT_GT(ScratchBytes(options, {layout})[0], 0);
}

// Alone, or beside others; blocks of a round backwards; into another version or in place.
TEST(PhasedUpdateTest, BlocksAndNeighboursChangeNoBit) {
  for (const Type type : {Type::kLamb, Type::kMuon}) {
    const OptimizerOptions options{.type = type, .learning_rate = 0.1};
    const ParameterSpec matrix{.name = "w", .shape = {300, 500}},
        small{.name = "s", .shape = {9, 5}};
    const std::vector<float> initial = Random(150000, 1), gradient = Random(150000, 2);
    Stage alone(options, {matrix});
    alone.Set(0, initial, gradient);
    alone.Update();
    Stage beside(options, {small, {.name = "bias", .shape = {7}}, matrix});
    beside.Set(0, Random(45, 3), Random(45, 4));
    beside.Set(1, Random(7, 3), Random(7, 4));
    beside.Set(2, initial, gradient);
    Buffer out = MakeHeapBuffer(beside.layout.parameter_bytes);
    Buffer scratch = MakeHeapBuffer(static_cast<size_t>(beside.optimizer.scratch_bytes()));
    const UpdateInput input{
        .theta = beside.theta.data(), .sum = beside.sum.data(), .scratch = scratch.data()};
    std::vector<UpdateBlock> blocks = beside.optimizer.blocks();
    EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end(),
                               [](const auto& a, const auto& b) { return a.round < b.round; }));
    std::reverse(blocks.begin(), blocks.end());
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const auto& a, const auto& b) { return a.round < b.round; });
    beside.optimizer.Begin(input);
    for (const UpdateBlock& block : blocks) beside.optimizer.Block(block, input, out.data());
    const int64_t offset = beside.layout.parameters[2].offset_bytes;
    EXPECT_EQ(std::memcmp(out.data() + offset, alone.theta.data(), 150000 * sizeof(float)), 0);
  }
}

TEST(PhasedUpdateTest, WhatDidNotContributeIsCarriedOver) {
  for (const Type type : {Type::kLamb, Type::kMuon}) {
    Stage stage({.type = type}, {{.name = "w", .shape = {30, 50}}});
    const std::vector<float> initial = Random(1500, 1);
    stage.Set(0, initial, initial);
    StartSum(stage.layout, stage.sum.data());
    Buffer out = MakeHeapBuffer(stage.layout.parameter_bytes);
    stage.optimizer.Update({.theta = stage.theta.data(), .sum = stage.sum.data()}, out.data());
    EXPECT_EQ(std::memcmp(out.data(), initial.data(), 1500 * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace ringzero
