// Residual networks: sizes, shortcuts, gradients, costs and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/models/models.h"
#include "sharding/partition.h"
#include "tests/models/model.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::ringzero::testing::Model;
using ::ringzero::testing::RandomInput;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
    for (const LayerFactory& layer : MakeResNet({.depth = depth})) {
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
                DescribeModel(MakeResNet({.depth = depth, .channels = 1, .image_size = 28}), {}));
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
    for (const LayerFactory& layer : MakeResNet({.depth = depth, .width = 2})) {
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
    EXPECT_EQ(MakeResNet({.depth = depth}).size(), static_cast<size_t>(depth));
  }
  const auto layers = MakeResNet({.depth = 20});
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
  const auto layers = MakeResNet({.depth = 8, .width = 4, .channels = 1, .image_size = 28});
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
    EXPECT_THAT(CheckResNet({.depth = depth}), Says("model.depth is"));
  }
  EXPECT_THAT(CheckResNet({.width = -1}), Says("model.width is -1"));
  EXPECT_THAT(CheckResNet({.channels = 2}), Says("model.channels is 2"));
  EXPECT_THAT(CheckResNet({.classes = 1}), Says("classes is 1"));
  EXPECT_THAT(CheckResNet({.image_size = 3}), Says("rows is 3"));
  EXPECT_TRUE(CheckResNet({}).ok());
}

}  // namespace
}  // namespace ringzero
