// Describing and planning a model: costs, layouts, ties, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "integrations/torch/describe_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ModelPlanTest, CountsByShape) {
  const std::vector<LayerFactory> layers = {
      {.name = "conv",
       .build =
           [] {
             return MakeLayer(
                 torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).stride(2).padding(1)));
           }},
      {.name = "flat",
       .build = [] { return MakeLayer([](at::Tensor x) { return x.flatten(1); }); }},
      {.name = "linear", .build = [] { return MakeLayer(torch::nn::Linear(36, 5)); }}};
  RZ_ASSIGN(const ModelDescription model, DescribeModel(layers, {at::zeros({1, 2, 6, 6})}));
  // 3x3 output positions, 4·2·3·3 weights, 2 operations each; plus one per input value.
  EXPECT_EQ(model.layers[0].cost.forward, 2 * 9 * 72 + 72);
  EXPECT_EQ(model.layers[0].cost.backward, 4 * 9 * 72 + 72);
  EXPECT_EQ(model.layers[1].cost.forward, 36);
  EXPECT_EQ(model.layers[2].cost.forward, 2 * 36 * 5 + 36);
  EXPECT_EQ(model.parameter_count, 72 + 4 + 36 * 5 + 5);
  EXPECT_THAT(model.layers[2].parameters[0].shape, ElementsAre(5, 36));
  EXPECT_EQ(model.layers[2].parameters[0].name, "linear.weight");
}

TEST(ModelPlanTest, CountsAttentionOnce) {
  const TrainingTask task = GptTask();
  RZ_ASSIGN(const ModelDescription model, DescribeModel(task.layers, task.example));
  const int64_t t = 5, d = 8;
  const int64_t products = 2 * t * (3 * d * d + d * d + 2 * 2 * d * d);
  const int64_t attention = 4 * t * t * d, norms = 2 * 8 * t * d;
  EXPECT_EQ(model.layers[2].cost.forward, products + attention + norms + t * d);
}

TEST(ModelPlanTest, TiedParametersBelongToTheFirstLayer) {
  const TrainingTask task = GptTask();
  RZ_ASSIGN(const ModelDescription model, DescribeModel(task.layers, task.example));
  EXPECT_EQ(model.layers[0].last_use, 5);
  EXPECT_TRUE(model.layers[5].parameters.empty());
  RZ_ASSIGN(const PlannedModel planned,
            PlanModel(model, {.workers = 3, .rule = Rule::kCdpV2, .stages = 3}));
  EXPECT_EQ(planned.plan.last_use(StageId(0)), StageId(2));
}

TEST(ModelPlanTest, BatchNormsStatistics) {
  const TrainingTask task = ConvTask();
  RZ_ASSIGN(const ModelDescription model, DescribeModel(task.layers, task.example));
  ASSERT_EQ(model.layers[1].statistics.size(), 3u);
  EXPECT_EQ(model.layers[1].statistics[0].name, "norm.running_mean");
  EXPECT_EQ(model.layers[1].statistics[0].blend, 0.3);
  EXPECT_EQ(model.layers[1].statistics[2].kind, StatisticSpec::Kind::kCount);
  // A channels_last weight travels in its own order.
  EXPECT_THAT(model.layers[0].parameters[0].strides, ElementsAre(18, 1, 6, 2));
}

TEST(ModelPlanTest, Refusals) {
  TrainingTask task = MlpTask(3);
  const std::vector<LayerFactory> good = task.layers;
  EXPECT_THAT(DescribeModel({}, {}), Says("no layers"));
  EXPECT_THAT(DescribeModel(good, {}), Says(AllOf(HasSubstr("linear0"), HasSubstr("example"))));
  std::vector<LayerFactory> bad = good;
  bad[2].name = "linear0";
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("linear0"), HasSubstr("unique"))));
  bad = good;
  bad[2].tied = {{"weight", "nowhere.weight"}};
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("linear1"), HasSubstr("nowhere.weight"))));
  bad = good;
  bad[2].tied = {{"weight", "linear0.weight"}};
  EXPECT_THAT(DescribeModel(bad, task.example), Says("shape"));
  bad = good;
  bad[2].build = [] { return MakeLayer(torch::nn::Linear(1000, 1)); };
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("linear1"), HasSubstr("count its cost"))));
  bad = good;
  bad[2].build = []() -> std::shared_ptr<Layer> { throw std::runtime_error("no disk"); };
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("linear1"), HasSubstr("no disk"))));
  bad = good;
  bad[2].build = [] { return MakeLayer(torch::nn::PReLU()); };
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("linear1"), HasSubstr("needs a cost"))));
  bad = good;
  bad[2].build = [] {
    return MakeLayer(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(9).momentum(std::nullopt)));
  };
  EXPECT_THAT(DescribeModel(bad, task.example), Says("momentum None"));
  bad = good;
  bad[2].build = [] {
    torch::nn::Linear linear(9, 10);
    linear->to(at::kDouble);
    return MakeLayer(linear);
  };
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("weight"), HasSubstr("fp32"))));
  bad[2].build = [] {
    torch::nn::Linear linear(9, 10);
    linear->weight.set_data(at::zeros({20, 9}).narrow(0, 5, 10));
    return MakeLayer(linear);
  };
  EXPECT_THAT(DescribeModel(bad, task.example),
              Says(AllOf(HasSubstr("weight"), HasSubstr("storage of its own"))));
}

TEST(ModelPlanTest, TooManyStagesAndOddBoundaries) {
  const TrainingTask task = MlpTask(3);
  RZ_ASSIGN(const ModelDescription model, DescribeModel(task.layers, task.example));
  EXPECT_FALSE(PlanModel(model, {.stages = 6}).ok());
  EXPECT_FALSE(PlanModel(model, {.workers = 0}).ok());
  EXPECT_FALSE(PlanModel(model, {.stages = 3, .boundaries = {0, 2}}).ok());
  RZ_ASSIGN(const PlannedModel given,
            PlanModel(model, {.rule = Rule::kCdpV2, .boundaries = {0, 3}}));
  EXPECT_EQ(given.plan.stage_count(), 2);
  RZ_ASSIGN(const PlannedModel few, PlanModel(model, {.workers = 4, .rule = Rule::kCdpV2}));
  EXPECT_THAT(few.warnings, testing::Contains(HasSubstr("own nothing")));
}

}  // namespace
}  // namespace ringzero
