// Stages are contiguous, never empty and as even as they can be; owners hold no more than they
// must.
#include "sharding/rules/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;

LayerInfo Layer(int64_t bytes, int64_t forward, int64_t backward) {
  return {.name = "layer",
          .parameter_bytes = bytes,
          .sum_bytes = bytes,
          .forward_cost = forward,
          .backward_cost = backward};
}

std::vector<int> FirstLayers(const std::vector<StagePlan>& stages) {
  std::vector<int> first;
  for (const StagePlan& stage : stages) first.push_back(stage.first_layer);
  return first;
}

// The heaviest stage of the best cut, by trying all.
int64_t BestMaximum(const std::vector<int64_t>& weights, int stages) {
  const int count = static_cast<int>(weights.size());
  int64_t best = INT64_MAX;
  for (int cuts = 0; cuts < (1 << (count - 1)); ++cuts) {
    if (__builtin_popcount(cuts) != stages - 1) continue;
    int64_t heaviest = 0, weight = 0;
    for (int i = 0; i < count; ++i) {
      weight += weights[i];
      if (i + 1 < count && !(cuts >> i & 1)) continue;
      heaviest = std::max(heaviest, weight);
      weight = 0;
    }
    best = std::min(best, heaviest);
  }
  return best;
}

TEST(PartitionTest, HeaviestStageIsAsLightAsPossible) {
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    std::vector<LayerInfo> layers(1 + random() % 9);
    std::vector<int64_t> costs, bytes;
    for (LayerInfo& layer : layers) {
      layer = Layer(random() % 4 * 64, random() % 10, random() % 20);
      layer.trainable = true;
    }
    const auto trainable = std::find_if(layers.begin(), layers.end(),
                                        [](const LayerInfo& l) { return l.sum_bytes > 0; });
    for (auto layer = layers.begin(); layer != layers.end(); ++layer) {
      costs.push_back(layer->forward_cost + (layer >= trainable ? layer->backward_cost : 0));
      bytes.push_back(layer->parameter_bytes);
    }
    for (int stages = 1; stages <= static_cast<int>(layers.size()); ++stages) {
      for (const Balance balance : {Balance::kCost, Balance::kBytes}) {
        RZ_ASSIGN(const auto cut, PartitionLayers(layers, {.balance = balance, .stages = stages}));
        ASSERT_EQ(static_cast<int>(cut.size()), stages);
        int64_t heaviest = 0;
        int end = 0;
        for (const StagePlan& stage : cut) {
          EXPECT_EQ(stage.first_layer, end);
          EXPECT_GT(stage.end_layer, stage.first_layer);
          end = stage.end_layer;
          heaviest = std::max(heaviest, balance == Balance::kCost
                                            ? stage.forward_cost + stage.backward_cost
                                            : stage.parameter_bytes);
        }
        EXPECT_EQ(end, static_cast<int>(layers.size()));
        EXPECT_EQ(heaviest, BestMaximum(balance == Balance::kCost ? costs : bytes, stages));
      }
    }
  }
}

TEST(PartitionTest, TiesAreCutTheSameWayEverywhere) {
  // The least sum of squares decides before the order does: no stage takes all that fits.
  std::vector<LayerInfo> layers(7, Layer(64, 1, 0));
  layers[6].forward_cost = 10;
  EXPECT_THAT(FirstLayers(*PartitionLayers(layers, {.stages = 3})), ElementsAre(0, 3, 6));
  // A layer that costs nothing stays with the one before it.
  const std::vector<LayerInfo> pairs{Layer(64, 1, 1), Layer(0, 0, 0), Layer(64, 1, 1),
                                     Layer(0, 0, 0)};
  EXPECT_THAT(FirstLayers(*PartitionLayers(pairs, {.stages = 2})), ElementsAre(0, 2));
  const std::vector<LayerInfo> five(5, Layer(64, 1, 1));
  EXPECT_THAT(FirstLayers(*PartitionLayers(five, {.stages = 3})), ElementsAre(0, 2, 4));
}

TEST(PartitionTest, StageAddsUpItsLayers) {
  std::vector<LayerInfo> layers{Layer(64, 1, 2), Layer(128, 3, 4), Layer(192, 5, 6)};
  layers[0].name = "first";
  layers[1].name = "second";
  layers[1].buffer_bytes = 8;
  RZ_ASSIGN(const auto stages, PartitionLayers(layers, {.first_layers = {0, 2}}));
  EXPECT_EQ(stages[0].name, "first..second");
  EXPECT_EQ(stages[1].name, "layer");
  EXPECT_EQ(stages[0].parameter_bytes, 192);
  EXPECT_EQ(stages[0].sum_bytes, 192);
  EXPECT_EQ(stages[0].buffer_bytes, 8);
  EXPECT_EQ(stages[0].forward_cost, 4);
  EXPECT_EQ(stages[0].backward_cost, 6);
  EXPECT_EQ(stages[1].end_layer, 3);
}

TEST(PartitionTest, FrozenPrefixHasNoBackwardAndCostsNone) {
  std::vector<LayerInfo> layers(4, Layer(64, 1, 10));
  layers[0].trainable = layers[1].trainable = layers[3].trainable = false;
  RZ_ASSIGN(const auto stages, PartitionLayers(layers, {.stages = 4}));
  std::vector<bool> backward;
  std::vector<int64_t> sums, costs;
  for (const StagePlan& stage : stages) {
    backward.push_back(stage.has_backward);
    sums.push_back(stage.sum_bytes);
    costs.push_back(stage.backward_cost);
  }
  EXPECT_THAT(backward, ElementsAre(false, false, true, true));
  EXPECT_THAT(sums, ElementsAre(0, 0, 64, 0));
  EXPECT_THAT(costs, ElementsAre(0, 0, 10, 10));
  // In one stage with a trainable layer, the frozen ones before it still cost no backward.
  EXPECT_EQ((*PartitionLayers(layers, {.stages = 1}))[0].backward_cost, 20);
}

TEST(PartitionTest, TiedLayersHoldTheirStageToTheirLastUse) {
  std::vector<LayerInfo> layers(4, Layer(64, 1, 1));
  layers[0].last_use = 3;
  layers[2].last_use = 3;
  RZ_ASSIGN(const auto stages, PartitionLayers(layers, {.first_layers = {0, 1, 2}}));
  EXPECT_EQ(stages[0].last_use, StageId(2));
  EXPECT_EQ(stages[1].last_use, StageId(-1));
  EXPECT_EQ(stages[2].last_use, StageId(-1)) << "its last use is in the stage itself";
}

TEST(PartitionTest, DefaultStagesAreUpToFourPerWorkerThatHaveParameters) {
  std::vector<LayerInfo> layers(10, Layer(64, 1, 1));
  layers.push_back(Layer(0, 1, 1));
  EXPECT_EQ(DefaultStageCount(layers, 1), 4);
  EXPECT_EQ(DefaultStageCount(layers, 2), 8);
  EXPECT_EQ(DefaultStageCount(layers, 3), 9);
  EXPECT_EQ(DefaultStageCount(layers, 4), 8);
  EXPECT_EQ(DefaultStageCount(layers, 10), 10);
  EXPECT_EQ(DefaultStageCount(layers, 11), 10) << "fewer than workers";
  EXPECT_EQ(DefaultStageCount(std::vector<LayerInfo>(3, Layer(0, 1, 1)), 2), 1);
}

TEST(PartitionTest, ErrorsNameWhatIsWrong) {
  const std::vector<LayerInfo> layers(3, Layer(64, 1, 1));
  EXPECT_THAT(PartitionLayers(layers, {.stages = 0}),
              Fails(absl::StatusCode::kInvalidArgument, "stages must be 1 to 3"));
  EXPECT_THAT(PartitionLayers(layers, {.stages = 4}),
              Fails(absl::StatusCode::kInvalidArgument, "stages must be 1 to 3"));
  const auto given = [](std::vector<int> first) {
    return PartitionOptions{.first_layers = std::move(first)};
  };
  EXPECT_THAT(PartitionLayers(layers, given({1, 2})),
              Fails(absl::StatusCode::kInvalidArgument, "begin at layer 0"));
  EXPECT_THAT(PartitionLayers(layers, given({0, 2, 2})),
              Fails(absl::StatusCode::kInvalidArgument, "stage 2 must begin after layer 2"));
  EXPECT_THAT(PartitionLayers(layers, given({0, 3})),
              Fails(absl::StatusCode::kInvalidArgument, "stage 1 begins at layer 3"));
  std::vector<LayerInfo> bad = layers;
  bad[1].last_use = 0;
  EXPECT_THAT(PartitionLayers(bad, {}), Says("last_use of layer 1"));
  bad = layers;
  bad[2].sum_bytes = -1;
  EXPECT_THAT(PartitionLayers(bad, {}), Says("layer 2"));
  EXPECT_THAT(PartitionLayers({}, {}), Says("no layers"));
}

Plan WithBytes(int workers, const std::vector<int64_t>& bytes) {
  Plan plan;
  plan.workers = workers;
  for (const int64_t b : bytes) {
    StagePlan stage;
    stage.parameter_bytes = stage.sum_bytes = b;
    plan.stages.push_back(stage);
  }
  AssignOwners(plan);
  return plan;
}

TEST(OwnersTest, EqualStagesAreAtHome) {
  for (int n = 1; n <= 16; ++n) {
    for (int k = 1; k <= 4; ++k) {
      const Plan plan = WithBytes(n, std::vector<int64_t>(n * k, 640));
      for (int j = 0; j < n * k; ++j) {
        EXPECT_EQ(plan.stages[j].owner.value, n - 1 - j * n / (n * k)) << "N " << n << " k " << k;
      }
      EXPECT_EQ(BytesPerOwner(plan).max, 2 * 640 * k);
      EXPECT_EQ(BytesPerOwner(plan).mean, 2.0 * 640 * k);
    }
  }
}

// The fullest owner of longest-first greedy without any preference.
int64_t GreedyMaximum(int workers, std::vector<int64_t> bytes) {
  std::sort(bytes.rbegin(), bytes.rend());
  std::vector<int64_t> held(workers, 0);
  for (const int64_t b : bytes) *std::min_element(held.begin(), held.end()) += 2 * b;
  return *std::max_element(held.begin(), held.end());
}

TEST(OwnersTest, NoOwnerHoldsMoreThanGreedyGives) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    const int workers = 1 + random() % 8;
    std::vector<int64_t> bytes(1 + random() % 20);
    for (int64_t& b : bytes) b = 64 * (random() % 50);
    const Plan plan = WithBytes(workers, bytes);
    EXPECT_LE(BytesPerOwner(plan).max, GreedyMaximum(workers, bytes));
  }
}

TEST(OwnersTest, NearlyEqualStagesStayAtHomeWhileThatHoldsNoMore) {
  // A large stage may not share its home; the others still go home where they fit.
  const Plan plan = WithBytes(2, {640, 64, 64, 64});
  EXPECT_EQ(plan.stages[0].owner, WorkerId(1));
  for (int j = 1; j < 4; ++j) EXPECT_EQ(plan.stages[j].owner, WorkerId(0));
  EXPECT_EQ(BytesPerOwner(plan).max, 1280);
}

}  // namespace
}  // namespace ringzero
