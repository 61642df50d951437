// The perceptron: sizes, gradients, costs and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integrations/torch/models/models.h"
#include "tests/models/model.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::ringzero::testing::Model;
using ::ringzero::testing::RandomInput;
using ::testing::IsEmpty;

TEST(Mlp, IsLinearLayersWithReluBetween) {
  Model model(MakeMlp({.sizes = {12, 8, 6, 3}}), 1);
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
  Model model(MakeMlp({.sizes = {12, 8, 3}}), 1);
  at::cross_entropy_loss(model.Forward(RandomInput({6, 12}, 1)), at::arange(6) % 3).backward();
  EXPECT_THAT(model.WithoutGradient(), IsEmpty());
}

TEST(Mlp, OneMatrixIsEnough) {
  Model model(MakeMlp({.sizes = {12, 3}}), 1);
  const at::Tensor y = model.Forward(RandomInput({6, 12}, 1));
  EXPECT_LT(y.min().item<float>(), 0);  // no ReLU after the last
}

TEST(Mlp, CostsAreTheAnalyticCounts) {
  const auto layers = MakeMlp({.sizes = {12, 8, 3}});
  EXPECT_EQ(layers[0].cost->forward, 2 * 12 * 8 + 2 * 8);
  EXPECT_EQ(layers[0].cost->backward, 2 * 12 * 8 + 2 * 8);  // no gradient of the inputs
  EXPECT_EQ(layers[1].cost->forward, 2 * 8 * 3 + 2 * 3);
  EXPECT_EQ(layers[1].cost->backward, 4 * 8 * 3 + 2 * 3);
}

TEST(Mlp, ErrorsNameTheKey) {
  EXPECT_THAT(CheckMlp({.sizes = {}}), Says("model.hidden, classes) has 0 sizes"));
  EXPECT_THAT(CheckMlp({.sizes = {5}}), Says("has 1 sizes"));
  EXPECT_THAT(CheckMlp({.sizes = {5, 0}}), Says("classes) is 0"));
  EXPECT_TRUE(CheckMlp({.sizes = {5, 2}}).ok());
}

}  // namespace
}  // namespace ringzero
