// The models: sizes, gradients, costs, initial values and errors; GPT against plain matrices,
// residual networks against the same arithmetic written out. Dropout by counter.
#include "integrations/torch/models/models.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "integrations/torch/describe_model.h"
#include "sharding/rules/partition.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A whole model in one process: built and initialised layer by layer, run in order.
class Model {
 public:
  Model(const absl::StatusOr<std::vector<LayerFactory>>& factories, uint64_t seed) {
    at::set_num_threads(1);
    const at::NoGradGuard no_grad;
    for (const LayerFactory& factory : factories.value()) {
      index_[factory.name] = layers_.size();
      layers_.push_back(factory.build());
      for (auto& item : layers_.back()->named_parameters()) {
        const std::string name = factory.name + "." + item.key();
        item.value().fill_(NAN);  // what initialize forgets is seen
        factory.initialize(item.key(), item.value(),
                           at::detail::createCPUGenerator(MixKeys({seed, HashName(name)})));
        parameters_[name] = item.value();
      }
    }
  }

  TensorList Forward(TensorList inputs) {
    for (auto& layer : layers_) inputs = layer->forward(std::move(inputs));
    return inputs;
  }
  at::Tensor Forward(const at::Tensor& input) { return Forward(TensorList{input})[0]; }

  Layer& layer(const std::string& name) { return *layers_.at(index_.at(name)); }
  // By full name: "stem.conv.weight".
  at::Tensor parameter(const std::string& name) const { return parameters_.at(name); }
  int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& [name, tensor] : parameters_) count += tensor.numel();
    return count;
  }
  // Names of parameters that the last backward gave no gradient, or one that is all zero.
  std::vector<std::string> WithoutGradient() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : parameters_) {
      if (!tensor.grad().defined() || tensor.grad().abs().max().item<float>() == 0) {
        names.push_back(name);
      }
    }
    return names;
  }
  void Evaluate() {
    for (auto& layer : layers_) layer->eval();
  }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
  std::map<std::string, size_t> index_;
  std::map<std::string, at::Tensor> parameters_;
};

// Fixed inputs, drawn by (seed).
at::Tensor RandomInput(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

at::Tensor RandomTokens(at::IntArrayRef shape, int64_t vocabulary, uint64_t seed) {
  return at::randint(vocabulary, shape, at::detail::createCPUGenerator(seed), at::kLong);
}

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
  RZ_ASSIGN(const auto layers, MakeGpt(kSmall));
  std::vector<std::string> names;
  for (const auto& layer : layers) names.push_back(layer.name);
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
  RZ_ASSIGN(const auto layers, MakeGpt(options));
  ASSERT_EQ(layers.back().tied.size(), 1u);
  EXPECT_EQ(layers.back().tied[0].parameter, "weight");
  EXPECT_EQ(layers.back().tied[0].target, "embedding.token");
  EXPECT_THAT(MakeGpt(kSmall)->back().tied, IsEmpty());

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
  RZ_ASSIGN(const auto layers, MakeGpt(kSmall));
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
  EXPECT_THAT(MakeGpt({.dim = 130, .heads = 4}), Says("model.dim is 130"));
  EXPECT_THAT(MakeGpt({.layers = 0}), Says("model.layers is 0"));
  EXPECT_THAT(MakeGpt({.dim = 0}), Says("model.dim is 0"));
  EXPECT_THAT(MakeGpt({.heads = -1}), Says("model.heads is -1"));
  EXPECT_THAT(MakeGpt({.vocab = 0}), Says("model.vocab is 0"));
  EXPECT_THAT(MakeGpt({.seq = 0}), Says("model.seq is 0"));
  EXPECT_THAT(MakeGpt({.dropout = 1}), Says("model.dropout is 1"));
  EXPECT_TRUE(MakeGpt({}).ok());
}

TEST(Mlp, IsLinearLayersWithReluBetween) {
  Model model(MakeMlp({12, 8, 6, 3}), 1);
  EXPECT_EQ(model.parameter_count(), 12 * 8 + 8 + 8 * 6 + 6 + 6 * 3 + 3);
  const at::Tensor x = RandomInput({5, 3, 2, 2}, 1);
  const auto linear = [&](const at::Tensor& in, const std::string& name) {
    return at::linear(in, model.parameter(name + ".weight"), model.parameter(name + ".bias"));
  };
  const at::Tensor wanted =
      linear(linear(linear(x.reshape({5, 12}), "linear0").relu(), "linear1").relu(), "linear2");
  EXPECT_TRUE(model.Forward(x).equal(wanted));
}

TEST(Mlp, GradientsReachEveryParameter) {
  Model model(MakeMlp({12, 8, 3}), 1);
  at::cross_entropy_loss(model.Forward(RandomInput({6, 12}, 1)), at::arange(6) % 3).backward();
  EXPECT_THAT(model.WithoutGradient(), IsEmpty());
}

TEST(Mlp, OneMatrixIsEnough) {
  Model model(MakeMlp({12, 3}), 1);
  const at::Tensor y = model.Forward(RandomInput({6, 12}, 1));
  EXPECT_LT(y.min().item<float>(), 0);  // no ReLU after the last
}

TEST(Mlp, CostsAreTheAnalyticCounts) {
  RZ_ASSIGN(const auto layers, MakeMlp({12, 8, 3}));
  EXPECT_EQ(layers[0].cost->forward, 2 * 12 * 8 + 2 * 8);
  EXPECT_EQ(layers[0].cost->backward, 2 * 12 * 8 + 2 * 8);  // no gradient of the inputs
  EXPECT_EQ(layers[1].cost->forward, 2 * 8 * 3 + 2 * 3);
  EXPECT_EQ(layers[1].cost->backward, 4 * 8 * 3 + 2 * 3);
}

TEST(Mlp, ErrorsNameTheKey) {
  EXPECT_THAT(MakeMlp({}), Says("model.hidden, classes) has 0 sizes"));
  EXPECT_THAT(MakeMlp({5}), Says("has 1 sizes"));
  EXPECT_THAT(MakeMlp({5, 0}), Says("classes) is 0"));
  EXPECT_TRUE(MakeMlp({5, 2}).ok());
}

int64_t WantedParameters(int64_t n, int64_t w, int64_t channels, int64_t classes) {
  const int64_t convolutions = channels * w + 2 * n * w * w + (w + (2 * n - 1) * 2 * w) * 2 * w +
                               (2 * w + (2 * n - 1) * 4 * w) * 4 * w;
  const int64_t norms = w + 2 * n * (w + 2 * w + 4 * w);
  return 9 * convolutions + 2 * norms + (4 * w + 1) * classes;
}

TEST(ResNet, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(WantedParameters(3, 16, 3, 10), 269722);  // 0.27 M in He et al., table 6
  for (const auto& [depth, wanted] : {std::pair{20, 269722}, {32, 464154}, {56, 853018}}) {
    EXPECT_EQ(Model(MakeResNet({.depth = depth}), 1).parameter_count(), wanted);
  }
  const ResNetOptions grey = {
      .depth = 14, .width = 8, .channels = 1, .image_size = 28, .classes = 7};
  EXPECT_EQ(Model(MakeResNet(grey), 1).parameter_count(), WantedParameters(2, 8, 1, 7));
}

// torchvision's resnet18 and so on, of 1000 classes and with a stem of 7x7: 11689512, 21797672 and
// 25557032. Ours have 10 classes and a stem of 3x3.
TEST(ResNet, ParameterCountsAreTorchvisionsLessStemAndHead) {
  struct Known {
    int64_t depth, torchvision, features;
  };
  const int64_t stem = (49 - 9) * 3 * 64;
  for (const Known& known : {Known{18, 11689512, 512}, {34, 21797672, 512}, {50, 25557032, 2048}}) {
    const int64_t head = (1000 - 10) * (known.features + 1);
    EXPECT_EQ(Model(MakeResNet({.depth = known.depth}), 1).parameter_count(),
              known.torchvision - stem - head)
        << known.depth;
  }
}

// Convolutions of a 32x32 colour image, in multiply-adds: 555.4 M and 1298 M are the figures in use
// for these stems; norms and elementwise work come on top.
TEST(ResNet, CostsOfTheImageNetDepths) {
  const auto cost = [](int64_t depth) {
    LayerCost sum;
    const auto layers = MakeResNet({.depth = depth}).value();
    for (const LayerFactory& layer : layers) {
      sum.forward += layer.cost->forward;
      sum.backward += layer.cost->backward;
    }
    return sum;
  };
  EXPECT_NEAR(static_cast<double>(cost(18).forward) / 2e6, 555.4, 4);
  EXPECT_NEAR(static_cast<double>(cost(50).forward) / 2e6, 1298, 16);
  EXPECT_NEAR(static_cast<double>(cost(50).backward) / static_cast<double>(cost(50).forward), 2,
              0.01);
}

TEST(ResNet, ImageNetDepthsAreCutIntoEqualStagesAndShares) {
  for (int64_t depth : {18, 50}) {
    for (int workers : {2, 4}) {
      RZ_ASSIGN(const auto model,
                DescribeModel(*MakeResNet({.depth = depth, .channels = 1, .image_size = 28}), {}));
      RZ_ASSIGN(const auto planned,
                PlanModel(model, {.workers = workers, .rule = Rule::kCdpV2, .micro_batch = 32}));
      EXPECT_THAT(planned.warnings, IsEmpty());
      const Plan& plan = planned.plan;
      ASSERT_EQ(plan.stage_count(), 4 * workers);
      int64_t most = 0, all = 0;
      for (const StagePlan& stage : plan.stages) {
        most = std::max(most, stage.forward_cost + stage.backward_cost);
        all += stage.forward_cost + stage.backward_cost;
      }
      EXPECT_LT(static_cast<double>(most * plan.stage_count()) / static_cast<double>(all), 1.4);
      const OwnerBytes owners = BytesPerOwner(plan);
      EXPECT_LT(static_cast<double>(owners.max) / owners.mean, 1.1);
    }
  }
}

TEST(ResNet, ProjectedShortcutsStandWhereTheShapeChanges) {
  const auto projections = [](int64_t depth) {
    std::vector<std::string> found;
    const auto layers = MakeResNet({.depth = depth, .width = 2}).value();
    for (const LayerFactory& layer : layers) {
      const auto built = layer.build();
      if (built->named_children().contains("shortcut")) found.push_back(layer.name);
    }
    return found;
  };
  EXPECT_THAT(projections(18), ElementsAre("block2.first", "block4.first", "block6.first"));
  EXPECT_THAT(projections(50),
              ElementsAre("block0.first", "block3.first", "block7.first", "block13.first"));
  EXPECT_THAT(projections(56), IsEmpty());
}

TEST(ResNet, MapsImagesToLogitsAndGradientsReachEveryParameter) {
  for (const int64_t depth : {8, 14, 18, 50}) {
    for (const int64_t channels : {1, 3}) {
      for (const int64_t size : {28, 32, 9}) {
        if (depth >= 18 && size == 9) continue;  // three halvings too many
        Model model(
            MakeResNet({.depth = depth, .width = 4, .channels = channels, .image_size = size}), 1);
        const at::Tensor logits = model.Forward(RandomInput({4, channels, size, size}, 1));
        EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{4, 10}));
        at::cross_entropy_loss(logits, at::arange(4)).backward();
        EXPECT_THAT(model.WithoutGradient(), IsEmpty()) << depth << " " << size;
      }
    }
  }
}

// A bottleneck block against the same arithmetic written out.
TEST(ResNet, BottlenecksComputeWhatTheyShould) {
  Model model(MakeResNet({.depth = 50, .width = 2, .image_size = 8}), 1);
  const at::Tensor x = RandomInput({3, 8, 8, 8}, 1);
  TensorList values = {x};
  for (const char* part : {"first", "second", "third"}) {
    values = model.layer(absl::StrCat("block3.", part)).forward(std::move(values));
  }
  const at::NoGradGuard no_grad;
  const auto conv_norm = [&](const at::Tensor& in, const std::string& name, int64_t stride) {
    const at::Tensor weight = model.parameter(name + "conv.weight");
    const int64_t padding = weight.size(2) / 2;
    const at::Tensor h = at::conv2d(in, weight, {}, {stride, stride}, {padding, padding});
    const at::Tensor mean = h.mean({0, 2, 3}, true);
    return (h - mean) / ((h - mean).square().mean({0, 2, 3}, true) + 1e-5).sqrt();
  };
  at::Tensor h = conv_norm(x, "block3.first.", 1).relu();
  h = conv_norm(h, "block3.second.", 2).relu();
  h = conv_norm(h, "block3.third.", 1) + conv_norm(x, "block3.first.shortcut.", 2);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].sizes(), (std::vector<int64_t>{3, 16, 4, 4}));
  EXPECT_TRUE(values[0].allclose(h.relu(), 1e-4, 1e-5));
}

TEST(ResNet, HasAsManyLayersAsItsDepthWithUniqueNames) {
  for (int64_t depth : {18, 34, 50}) {
    EXPECT_EQ(MakeResNet({.depth = depth})->size(), static_cast<size_t>(depth));
  }
  RZ_ASSIGN(const auto layers, MakeResNet({.depth = 20}));
  EXPECT_EQ(layers.size(), 20u);
  std::set<std::string> names;
  for (const auto& layer : layers) names.insert(layer.name);
  EXPECT_EQ(names.size(), 20u);
  EXPECT_EQ(layers[0].name, "stem");
  EXPECT_EQ(layers[1].name, "block0.first");
  EXPECT_EQ(layers[18].name, "block8.second");
  EXPECT_EQ(layers[19].name, "head");
}

TEST(ResNet, SeedAndDepthMatterAndNothingElse) {
  const at::Tensor x = RandomInput({2, 3, 32, 32}, 1);
  const auto run = [&](int64_t depth, uint64_t seed) {
    return Model(MakeResNet({.depth = depth, .width = 4}), seed).Forward(x);
  };
  EXPECT_TRUE(run(8, 1).equal(run(8, 1)));
  EXPECT_FALSE(run(8, 1).equal(run(8, 2)));
  EXPECT_FALSE(run(8, 1).equal(run(14, 1)));
}

// With the second norm's weight zero a block is the ReLU of its shortcut.
TEST(ResNet, ShortcutsHalveTheImageAndPadTheChannels) {
  Model model(MakeResNet({.depth = 8, .width = 2, .channels = 1, .image_size = 8}), 1);
  const at::NoGradGuard no_grad;
  for (const char* block : {"block0", "block1"}) {
    model.parameter(std::string(block) + ".second.norm.weight").zero_();
  }
  const at::Tensor x = RandomInput({3, 2, 8, 8}, 1).abs();
  const auto block = [&](const std::string& name, const at::Tensor& in) {
    return model.layer(name + ".second").forward(model.layer(name + ".first").forward({in}))[0];
  };
  EXPECT_TRUE(block("block0", x).equal(x));
  const at::Tensor y = block("block1", x);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{3, 4, 4, 4}));
  EXPECT_TRUE(y.slice(1, 1, 3).equal(x.slice(2, 0, 8, 2).slice(3, 0, 8, 2)));
  EXPECT_EQ(y.slice(1, 0, 1).abs().max().item<float>(), 0);
  EXPECT_EQ(y.slice(1, 3, 4).abs().max().item<float>(), 0);
}

TEST(ResNet, TheBlocksInputTravelsBetweenItsHalves) {
  Model model(MakeResNet({.depth = 8, .width = 2}), 1);
  const at::Tensor x = RandomInput({1, 2, 8, 8}, 1);
  const TensorList between = model.layer("block0.first").forward({x});
  ASSERT_EQ(between.size(), 2u);
  EXPECT_TRUE(between[0].is_same(x));
}

TEST(ResNet, RunningStatisticsMoveInTrainingOnly) {
  Model model(MakeResNet({.depth = 8, .width = 2}), 1);
  const at::Tensor mean = model.layer("stem").named_buffers()["norm.running_mean"];
  EXPECT_EQ(mean.abs().sum().item<float>(), 0);
  model.Forward(RandomInput({4, 3, 32, 32}, 1));
  EXPECT_GT(mean.abs().sum().item<float>(), 0);
  const at::Tensor before = mean.clone();
  model.Evaluate();
  model.Forward(RandomInput({4, 3, 32, 32}, 2));
  EXPECT_TRUE(mean.equal(before));
}

TEST(ResNet, InitialValuesKeepTheVariance) {
  Model model(MakeResNet({.depth = 8, .width = 64}), 1);
  const at::Tensor w = model.parameter("block0.first.conv.weight").detach();
  EXPECT_NEAR(w.std().item<double>() / std::sqrt(2.0 / (9 * 64)), 1, 0.02);
  EXPECT_NEAR(w.mean().item<double>(), 0, 1e-3);
  EXPECT_EQ(model.parameter("block0.first.norm.weight").min().item<float>(), 1);
  EXPECT_EQ(model.parameter("head.linear.bias").abs().max().item<float>(), 0);
}

// The update rules are chosen by these numbers: they are part of what a run computes.
TEST(ResNet, CostsAreTheAnalyticCounts) {
  RZ_ASSIGN(const auto layers,
            MakeResNet({.depth = 8, .width = 4, .channels = 1, .image_size = 28}));
  const int64_t e = 4 * 28 * 28, half = 8 * 14 * 14;  // elements
  EXPECT_EQ(layers[0].cost->forward, 2 * 9 * 1 * e + 8 * e + e);
  EXPECT_EQ(layers[0].cost->backward, 2 * 9 * 1 * e + 16 * e + e);  // no gradient of the images
  EXPECT_EQ(layers[1].cost->forward, 2 * 9 * 4 * e + 8 * e + e);
  EXPECT_EQ(layers[1].cost->backward, 4 * 9 * 4 * e + 16 * e + e);
  EXPECT_EQ(layers[2].cost->forward, 2 * 9 * 4 * e + 8 * e + 2 * e);
  EXPECT_EQ(layers[3].cost->forward, 2 * 9 * 4 * half + 8 * half + half);
  EXPECT_EQ(layers[4].cost->forward, 2 * 9 * 8 * half + 8 * half + 2 * half);
  EXPECT_EQ(layers.back().cost->forward, 2 * 16 * 10 + 16 * 7 * 7);
  EXPECT_EQ(layers.back().cost->backward, 4 * 16 * 10 + 16 * 7 * 7);
}

TEST(ResNet, ErrorsNameTheKey) {
  for (int64_t depth : {0, 2, 19, 21, -4}) {
    EXPECT_THAT(MakeResNet({.depth = depth}), Says("model.depth is"));
  }
  EXPECT_THAT(MakeResNet({.width = -1}), Says("model.width is -1"));
  EXPECT_THAT(MakeResNet({.channels = 2}), Says("model.channels is 2"));
  EXPECT_THAT(MakeResNet({.classes = 1}), Says("classes is 1"));
  EXPECT_THAT(MakeResNet({.image_size = 3}), Says("rows is 3"));
  EXPECT_TRUE(MakeResNet({}).ok());
}

at::Tensor MaskOf(MicroBatchContext context, int64_t size = 1000, int draws_before = 0) {
  MicroBatchScope scope(context);
  Dropout dropout(0.5);
  for (int i = 0; i < draws_before; ++i) dropout.forward(at::ones({3}));
  return dropout.forward(at::ones({size}));
}

TEST(Dropout, DropsTheGivenShareAndKeepsTheMean) {
  for (double p : {0.1, 0.5, 0.9}) {
    MicroBatchScope scope({.seed = 1});
    constexpr int64_t kSize = 1000003;  // no multiple of a block
    const at::Tensor y = Dropout(p).forward(at::ones({kSize}));
    const double dropped = y.eq(0).sum().item<double>() / kSize;
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / kSize));
    const at::Tensor kept = y.masked_select(y.ne(0));
    EXPECT_FLOAT_EQ(kept.min().item<float>(), static_cast<float>(1 / (1 - p)));
    EXPECT_FLOAT_EQ(kept.max().item<float>(), static_cast<float>(1 / (1 - p)));
    // Neighbours are independent.
    const at::Tensor drop = y.eq(0).to(at::kDouble) - p;
    const double together = (drop.slice(0, 1) * drop.slice(0, 0, -1)).mean().item<double>();
    EXPECT_NEAR(together, 0, 5 * p * (1 - p) / std::sqrt(kSize));
  }
}

TEST(Dropout, IsAFunctionOfTheContextAlone) {
  const MicroBatchContext context = {.seed = 1, .iteration = 2, .micro_batch = 3, .layer = 4};
  const at::Tensor mask = MaskOf(context);
  EXPECT_TRUE(mask.equal(MaskOf(context)));
  EXPECT_TRUE(mask.slice(0, 0, 10).equal(MaskOf(context, 10)));  // an element's index is its place
  for (int field = 0; field < 5; ++field) {
    MicroBatchContext other = context;
    if (field == 0) ++other.seed;
    if (field == 1) ++other.iteration;
    if (field == 2) ++other.micro_batch;
    if (field == 3) ++other.layer;
    if (field == 4) ++other.call;
    EXPECT_NEAR(mask.eq(MaskOf(other)).to(at::kFloat).mean().item<float>(), 0.5, 0.08) << field;
  }
  MicroBatchContext second = context;
  second.call = 1;
  EXPECT_TRUE(MaskOf(second).equal(MaskOf(context, 1000, 1)));  // each forward is one draw
}

// A change here would change every run that was ever recorded.
TEST(Dropout, KnownAnswer) {
  const at::Tensor kept =
      MaskOf({.seed = 1, .iteration = 2, .micro_batch = 3, .layer = 4}, 16).ne(0);
  std::string bits;
  for (int i = 0; i < 16; ++i) bits += kept[i].item<bool>() ? '1' : '0';
  EXPECT_EQ(bits, "0110100101100001");
}

TEST(Dropout, GradientUsesTheSameMask) {
  MicroBatchScope scope({.seed = 1});
  const at::Tensor x = at::ones({4, 50}).requires_grad_();
  const at::Tensor y = Dropout(0.3).forward(x * 2);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

TEST(Dropout, IndexIsRowMajorWhateverTheStrides) {
  const at::Tensor x = at::ones({30, 20});
  MicroBatchScope scope({.seed = 1});
  const at::Tensor a = Dropout(0.5).forward(x);
  CurrentContext()->call = 0;
  const at::Tensor b = Dropout(0.5).forward(at::ones({20, 30}).t());
  EXPECT_TRUE(a.equal(b));
}

TEST(Dropout, IsTheIdentityInEvaluationAndForZero) {
  Dropout dropout(0.5);
  dropout.eval();
  const at::Tensor x = at::ones({5});
  EXPECT_TRUE(dropout.forward(x).is_same(x));
  EXPECT_TRUE(Dropout(0).forward(x).is_same(x));
}

TEST(Dropout, ErrorsSayWhatToDo) {
  try {
    Dropout(0.5).forward(at::ones({5}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr("MicroBatchScope"));
  }
  EXPECT_THROW(Dropout(1.0), c10::Error);
  EXPECT_THROW(Dropout(-0.1), c10::Error);
  EXPECT_THROW(Dropout{NAN}, c10::Error);
}

}  // namespace
}  // namespace ringzero
