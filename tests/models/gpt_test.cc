// GPT: sizes, causality, attention against plain matrices, tied heads, costs and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "integrations/torch/layer.h"
#include "integrations/torch/models/models.h"
#include "tests/models/model.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::ringzero::testing::Model;
using ::ringzero::testing::RandomInput;
using ::ringzero::testing::RandomTokens;
using ::testing::IsEmpty;

constexpr GptOptions kSmall = {.layers = 2, .dim = 16, .heads = 4, .vocab = 11, .seq = 12};

TEST(Gpt, ParameterCountIsTheFormulas) {
  const auto wanted = [](const GptOptions& o) {
    const int64_t block = 12 * o.dim * o.dim + 13 * o.dim;
    return o.layers * block + (2 * o.vocab + o.seq) * o.dim + 2 * o.dim;
  };
  EXPECT_EQ(Model(MakeGpt(kSmall), 1).parameter_count(), wanted(kSmall));
  const GptOptions other = {.layers = 3, .dim = 24, .heads = 2, .vocab = 256, .seq = 64};
  EXPECT_EQ(Model(MakeGpt(other), 1).parameter_count(), wanted(other));
}

TEST(Gpt, LayersAreHalvesOfBlocks) {
  std::vector<std::string> names;
  for (const auto& layer : MakeGpt(kSmall)) names.push_back(layer.name);
  EXPECT_THAT(names, ::testing::ElementsAre("embedding", "block0.attention", "block0.mlp",
                                            "block1.attention", "block1.mlp", "head"));
}

TEST(Gpt, MapsTokensToLogitsOfAnyLengthUpToSeq) {
  Model model(MakeGpt(kSmall), 1);
  for (int64_t length : {1, 5, 12}) {
    EXPECT_EQ(model.Forward(RandomTokens({3, length}, 11, 1)).sizes(),
              (std::vector<int64_t>{3, length, 11}));
  }
  EXPECT_THROW(model.Forward(RandomTokens({3, 13}, 11, 1)), c10::Error);
}

TEST(Gpt, NoPositionSeesTheFuture) {
  Model model(MakeGpt(kSmall), 1);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = RandomTokens({1, 12}, 11, 1);
  at::Tensor changed = tokens.clone();
  changed[0][7] = (tokens[0][7] + 1) % 11;
  const at::Tensor a = model.Forward(tokens), b = model.Forward(changed);
  EXPECT_TRUE(a.slice(1, 0, 7).equal(b.slice(1, 0, 7)));
  for (int64_t t = 7; t < 12; ++t) EXPECT_FALSE(a.select(1, t).equal(b.select(1, t))) << t;
}

TEST(Gpt, GradientsReachEveryParameter) {
  Model model(MakeGpt(kSmall), 1);
  const at::Tensor logits = model.Forward(RandomTokens({2, 12}, 11, 1));
  at::cross_entropy_loss(logits.reshape({-1, 11}), RandomTokens({24}, 11, 2)).backward();
  EXPECT_THAT(model.WithoutGradient(), IsEmpty());
}

TEST(Gpt, SeedAndDepthMatterAndNothingElse) {
  const at::Tensor tokens = RandomTokens({2, 12}, 11, 1);
  const auto run = [&](int64_t layers, uint64_t seed) {
    GptOptions options = kSmall;
    options.layers = layers;
    return Model(MakeGpt(options), seed).Forward(tokens);
  };
  EXPECT_TRUE(run(2, 1).equal(run(2, 1)));
  EXPECT_FALSE(run(2, 1).equal(run(2, 2)));
  EXPECT_FALSE(run(2, 1).equal(run(3, 1)));
}

TEST(Gpt, BackwardGivesTheSameBitsTwice) {
  const auto gradient = [] {
    Model model(MakeGpt({.layers = 1, .dim = 64, .heads = 4, .vocab = 50, .seq = 128}), 1);
    const at::Tensor logits = model.Forward(RandomTokens({4, 128}, 50, 1));
    at::cross_entropy_loss(logits.reshape({-1, 50}), RandomTokens({512}, 50, 2)).backward();
    return model.parameter("block0.attention.qkv.weight").grad();
  };
  EXPECT_TRUE(gradient().equal(gradient()));
}

// The attention layer against its definition, by plain matrices.
TEST(Gpt, AttentionIsSoftmaxOfScaledProducts) {
  Model model(MakeGpt(kSmall), 1);
  const at::NoGradGuard no_grad;
  const auto p = [&](const std::string& name) {
    at::Tensor t = model.parameter("block0.attention." + name);
    if (name == "qkv.weight") t.mul_(20);  // so that the softmax is far from uniform
    return t;
  };
  const at::Tensor qkv = p("qkv.weight"), x = RandomInput({2, 12, 16}, 3);
  const at::Tensor n = at::layer_norm(x, {16}, p("norm.weight"), p("norm.bias"));
  const auto parts = (n.matmul(qkv.t()) + p("qkv.bias")).chunk(3, 2);
  at::Tensor wanted = at::zeros({2, 12, 16});
  for (int64_t h = 0; h < 4; ++h) {
    const auto head = [&](int i) { return parts[i].slice(2, 4 * h, 4 * h + 4); };
    const at::Tensor scores = head(0).matmul(head(1).transpose(1, 2)) / 2;  // sqrt(4)
    const at::Tensor future = at::ones({12, 12}).triu(1).to(at::kBool);
    const at::Tensor shares = scores.masked_fill(future, -INFINITY).softmax(2);
    wanted.slice(2, 4 * h, 4 * h + 4).copy_(shares.matmul(head(2)));
  }
  wanted = x + wanted.matmul(p("project.weight").t()) + p("project.bias");
  const at::Tensor found = model.layer("block0.attention").forward({x})[0];
  EXPECT_TRUE(found.allclose(wanted, 1e-4, 1e-5));
}

// One storage for both: the sum of both gradients is the derivative of the loss.
TEST(Gpt, TiedHeadSharesTheEmbedding) {
  GptOptions options = kSmall;
  options.tied = true;
  const auto layers = MakeGpt(options);
  ASSERT_EQ(layers.back().tied.size(), 1u);
  EXPECT_EQ(layers.back().tied[0].parameter, "weight");
  EXPECT_EQ(layers.back().tied[0].target, "embedding.token");
  EXPECT_THAT(MakeGpt(kSmall).back().tied, IsEmpty());

  Model model(layers, 1);
  at::Tensor token = model.parameter("embedding.token"), head = model.parameter("head.weight");
  ASSERT_EQ(token.sizes(), head.sizes());
  head.set_data(token.data());
  const at::Tensor tokens = RandomTokens({2, 12}, 11, 1), targets = RandomTokens({24}, 11, 2);
  const auto loss = [&] {
    return at::cross_entropy_loss(model.Forward(tokens).reshape({-1, 11}), targets);
  };
  loss().backward();
  const at::Tensor gradient = token.grad() + head.grad();
  const at::Tensor direction = gradient / gradient.norm();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-2;
  token.add_(direction, kStep);
  const double above = loss().item<double>();
  token.add_(direction, -2 * kStep);
  const double below = loss().item<double>();
  EXPECT_NEAR((above - below) / (2 * kStep) / gradient.norm().item<double>(), 1, 0.02);
}

TEST(Gpt, DropoutIsOffInEvaluationAndKeyedInTraining) {
  GptOptions options = kSmall;
  options.dropout = 0.2;
  Model model(MakeGpt(options), 1), plain(MakeGpt(kSmall), 1);
  const at::Tensor tokens = RandomTokens({2, 12}, 11, 1);
  EXPECT_THROW(model.Forward(tokens), c10::Error);  // outside of a micro-batch
  const auto train = [&](int64_t micro_batch) {
    MicroBatchScope scope({.seed = 1, .micro_batch = micro_batch});
    return model.Forward(tokens);
  };
  EXPECT_TRUE(train(0).equal(train(0)));
  EXPECT_FALSE(train(0).equal(train(1)));
  model.Evaluate();
  EXPECT_TRUE(model.Forward(tokens).equal(plain.Forward(tokens)));
}

TEST(Gpt, InitialValuesAreGpt2s) {
  Model model(MakeGpt({.layers = 8, .dim = 128, .heads = 4, .vocab = 256, .seq = 64}), 1);
  const auto deviation = [&](const std::string& name) {
    return model.parameter(name).detach().std().item<double>();
  };
  EXPECT_NEAR(deviation("embedding.token"), 0.02, 0.0005);
  EXPECT_NEAR(deviation("block3.attention.qkv.weight"), 0.02, 0.0005);
  EXPECT_NEAR(deviation("block3.mlp.project.weight"), 0.02 / 4, 0.0002);
  EXPECT_NEAR(deviation("block3.attention.project.weight"), 0.02 / 4, 0.0002);
  EXPECT_EQ(model.parameter("block3.mlp.expand.bias").abs().max().item<float>(), 0);
  EXPECT_EQ(model.parameter("head.norm.weight").min().item<float>(), 1);
  // ln(vocab): it knows nothing yet.
  const at::Tensor logits = model.Forward(RandomTokens({1, 64}, 256, 1));
  EXPECT_NEAR(
      at::cross_entropy_loss(logits.reshape({-1, 256}), RandomTokens({64}, 256, 2)).item<double>(),
      std::log(256), 0.1);
}

// The update rules are chosen by these numbers: they are part of what a run computes.
TEST(Gpt, CostsAreTheAnalyticCounts) {
  const auto layers = MakeGpt(kSmall);
  constexpr int64_t t = 12, d = 16, v = 11, heads = 4;
  EXPECT_EQ(layers[0].cost->forward, t * d);
  EXPECT_EQ(layers[0].cost->backward, 2 * t * d);
  const int64_t products = 2 * (t * d * 4 * d + 2 * t * t * d);
  EXPECT_EQ(layers[1].cost->forward, 8 * t * d + products + 5 * t * t * heads + t * d);
  EXPECT_EQ(layers[1].cost->backward, 16 * t * d + 2 * products + 5 * t * t * heads + t * d);
  EXPECT_EQ(layers[2].cost->forward, 8 * t * d + 2 * t * 8 * d * d + 8 * t * 4 * d + t * d);
  EXPECT_EQ(layers[2].cost->backward, 16 * t * d + 4 * t * 8 * d * d + 12 * t * 4 * d + t * d);
  EXPECT_EQ(layers[5].cost->forward, 8 * t * d + 2 * t * d * v);
  EXPECT_EQ(layers[5].cost->backward, 16 * t * d + 4 * t * d * v);
}

TEST(Gpt, ErrorsNameTheKey) {
  EXPECT_THAT(CheckGpt({.dim = 130, .heads = 4}), Says("model.dim is 130"));
  EXPECT_THAT(CheckGpt({.layers = 0}), Says("model.layers is 0"));
  EXPECT_THAT(CheckGpt({.dim = 0}), Says("model.dim is 0"));
  EXPECT_THAT(CheckGpt({.heads = -1}), Says("model.heads is -1"));
  EXPECT_THAT(CheckGpt({.vocab = 0}), Says("model.vocab is 0"));
  EXPECT_THAT(CheckGpt({.seq = 0}), Says("model.seq is 0"));
  EXPECT_THAT(CheckGpt({.dropout = 1}), Says("model.dropout is 1"));
  EXPECT_TRUE(CheckGpt({}).ok());
}

}  // namespace
}  // namespace ringzero
