// Models that strain the hooks: each still gives the reference's bits, alone and on a ring.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <set>
#include <string>
#include <vector>

#include "integrations/torch/layer.h"
#include "integrations/torch/layer_parts.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

LayerFactory Lists(const std::string& name, std::function<TensorList(TensorList)> f) {
  return {.name = name, .build = [f] { return MakeLayer(f); }};
}

TrainingTask TaskWith(std::vector<LayerFactory> layers) {
  TrainingTask task = MakeTask(std::move(layers), {3, 5}, 4);
  task.optimizer.sgd = {.momentum = 0.9, .weight_decay = 0.1};
  return task;
}

// One layer a stage, every rule, one, two and three workers.
void ExpectBits(const TrainingTask& task) {
  for (const int n : {1, 2, 3}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ExpectReferenceBits(task, PlanTask(task, {.workers = n,
                                                .rule = rule,
                                                .stages = int(task.layers.size()),
                                                .iterations = 3}));
    }
  }
}

TEST(HooksTest, InPlaceFirstOperation) {
  ExpectBits(TaskWith(
      {LinearLayer("a", 5, 6), OneToOne("relu", [](at::Tensor x) { return x.relu_(); }),
       LinearLayer("b", 6, 6), OneToOne("scale", [](at::Tensor x) { return x.mul_(0.5).add_(1); }),
       LinearLayer("c", 6, 4)}));
}

TEST(HooksTest, StagesWithTwoInputs) {
  TrainingTask task =
      TaskWith({Lists("split",
                      [](TensorList x) {
                        return TensorList{x[0].sin(), x[0].cos(), x[1]};
                      }),
                LinearLayer("a", 5, 6),
                Lists("swap",
                      [](TensorList x) {
                        return TensorList{x[1], x[0], x[2]};
                      }),
                LinearLayer("b", 5, 6),
                Lists("join",
                      [](TensorList x) {
                        // x[2] is an integer mask: it needs no gradient and stays as it is.
                        return TensorList{(x[0] * x[1]).masked_fill(x[2] == 1, 0.25)};
                      }),
                LinearLayer("c", 6, 4)});
  task.example = {at::zeros({1, 5}), at::zeros({1, 6}, at::kLong)};
  task.batch = [](int64_t t, int64_t m, bool evaluation) {
    const uint64_t key = BatchKey(t, m, evaluation);
    return TaskBatch{{KeyedValues({3, 5}, key), KeyedClasses({3, 6}, 2, key)},
                     KeyedClasses({3}, 4, ~key)};
  };
  ExpectBits(task);
}

TEST(HooksTest, SkipConnectionsAcrossStages) {
  // The skip is used by three stages, and travels through all of them.
  const auto keep = [](TensorList x) { return TensorList{x[0], x[0]}; };
  const auto add = [](TensorList x) { return TensorList{x[0] + x[1], x[1]}; };
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), Lists("keep", keep), LinearLayer("b", 6, 6),
                       Lists("add1", add), LinearLayer("c", 6, 6),
                       Lists("add2",
                             [](TensorList x) {
                               return TensorList{x[0] * x[1], x[1]};
                             }),
                       Lists("add3", add), LinearLayer("d", 6, 4)}));
}

// Uses its second Linear in every other micro-batch, and its third never.
struct Fickle : Layer {
  Fickle() : always(6, 6), sometimes(6, 6), never(6, 6) {
    register_module("always", always);
    register_module("sometimes", sometimes);
    register_module("never", never);
  }
  TensorList forward(TensorList x) override {
    x[0] = always(x[0]);
    const MicroBatchContext* context = CurrentContext();
    const bool odd = context != nullptr && (context->iteration + context->micro_batch) % 2 == 1;
    if (odd) x[0] = x[0] + sometimes(x[0]);
    return x;
  }
  torch::nn::Linear always, sometimes, never;
};

TEST(HooksTest, UnusedParameters) {
  const TrainingTask task = TaskWith({LinearLayer("a", 5, 6),
                                      {.name = "fickle",
                                       .build = [] { return std::make_shared<Fickle>(); },
                                       .cost = LayerCost{100, 200}},
                                      LinearLayer("b", 6, 4)});
  ExpectBits(task);
  const TrainingResult untouched = TrainOrdinaryLoop(task, 1, 0);
  RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.rule = Rule::kCdpV2, .iterations = 2}));
  RZ_ASSIGN(const TrainingResult ring, RunRing(task, planned));
  // Not even decayed.
  EXPECT_EQ(ring.parameters.at("fickle.never.weight"),
            untouched.parameters.at("fickle.never.weight"));
}

LayerFactory Frozen(LayerFactory factory) {
  factory.build = [build = factory.build] {
    std::shared_ptr<Layer> layer = build();
    for (at::Tensor& p : layer->parameters()) p.set_requires_grad(false);
    return layer;
  };
  return factory;
}

TEST(HooksTest, FrozenPrefix) {
  ExpectBits(TaskWith({Frozen(LinearLayer("a", 5, 6)), Frozen(LinearLayer("b", 6, 6)),
                       LinearLayer("c", 6, 6), LinearLayer("d", 6, 4)}));
}

TEST(HooksTest, FrozenMiddle) {
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), Frozen(LinearLayer("b", 6, 6)),
                       Frozen(LinearLayer("c", 6, 6)), LinearLayer("d", 6, 4)}));
}

TEST(HooksTest, AllButTheMiddleFrozen) {
  ExpectBits(TaskWith(
      {Frozen(LinearLayer("a", 5, 6)), LinearLayer("b", 6, 6), Frozen(LinearLayer("c", 6, 4))}));
}

LayerFactory Tied(LayerFactory factory, const std::string& target) {
  factory.tied = {{"weight", target}};
  return factory;
}

TEST(HooksTest, ThreeTiedStages) {
  // Two uses a parameter: with three, the order in which gradients meet would be autograd's.
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), LinearLayer("b", 6, 6), LinearLayer("c", 6, 6),
                       Tied(LinearLayer("d", 6, 6), "b.weight"),
                       Tied(LinearLayer("e", 6, 6), "c.weight"), LinearLayer("f", 6, 4)}));
}

TEST(HooksTest, FrozenTiedPrefix) {
  ExpectBits(TaskWith({Frozen(LinearLayer("a", 5, 5)), LinearLayer("b", 5, 5),
                       Frozen(Tied(LinearLayer("c", 5, 5), "a.weight")), LinearLayer("d", 5, 4)}));
}

// g·v/|v|, recomputed in each forward: its nodes need no input.
struct WeightNormed : Layer {
  WeightNormed() {
    g = register_parameter("g", torch::ones({6, 1}));
    v = register_parameter("v", torch::randn({6, 6}));
  }
  TensorList forward(TensorList x) override {
    x[0] = at::linear(x[0], g * v / v.norm(2, {1}, true));
    return x;
  }
  at::Tensor g, v;
};

TEST(HooksTest, WeightNorm) {
  const auto normed = [](const std::string& name) {
    return LayerFactory{.name = name,
                        .build = [] { return std::make_shared<WeightNormed>(); },
                        .cost = LayerCost{100, 200}};
  };
  ExpectBits(
      TaskWith({LinearLayer("a", 5, 6), normed("n1"), normed("n2"), LinearLayer("b", 6, 4)}));
  ExpectBits(TaskWith({OneToOne("pad",
                                [](at::Tensor x) {
                                  return at::constant_pad_nd(x, {0, 1});
                                }),
                       normed("n1"), LinearLayer("b", 6, 4)}));
}

TEST(HooksTest, SlicesAndViewsOfWeights) {
  struct Sliced : Layer {
    Sliced() { w = register_parameter("w", torch::randn({6, 12})); }
    TensorList forward(TensorList x) override {
      x[0] = at::matmul(x[0], w.narrow(1, 0, 6)) * at::matmul(x[0], w.narrow(1, 6, 6).tanh());
      return x;
    }
    at::Tensor w;
  };
  ExpectBits(TaskWith({LinearLayer("a", 5, 6),
                       {.name = "sliced",
                        .build = [] { return std::make_shared<Sliced>(); },
                        .cost = LayerCost{100, 200}},
                       LinearLayer("b", 6, 4)}));
}

// A module that exists only once gives its values without a second build.
TEST(HooksTest, AReadyModuleGivesItsValues) {
  for (const ValueType compute : {ValueType::kFp32, ValueType::kBf16}) {
    TrainingTask task =
        TaskWith({LinearLayer("a", 5, 6),
                  {.name = "norm", .build = [] { return MakeLayer(torch::nn::BatchNorm1d(6)); }},
                  LinearLayer("b", 6, 4)});
    task.precision.compute = compute;
    RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.stages = 2, .iterations = 3}));
    RZ_ASSIGN(const TrainingResult wanted, RunRing(task, planned));
    int built = 0;
    for (LayerFactory& layer : task.layers) {
      RZ_ASSIGN(const std::shared_ptr<Layer> once, BuildLayer(layer, task.seed));
      layer.initialize = nullptr;
      layer.ready = true;
      layer.build = [once, &built] {
        ++built;
        return once;
      };
    }
    RZ_ASSIGN(const TrainingResult found, RunRing(task, planned));
    EXPECT_GT(built, 3);  // what it gives later has no values any more
    EXPECT_TRUE(found == wanted) << ToString(compute);
  }
}

// Torch's own Dropout: its mask belongs to the micro-batch, whichever worker computes it and
// however the model is cut, and the process's generator stays where it was.
TEST(HooksTest, TorchsDropout) {
  const auto train = [](double p, int workers, int stages) -> absl::StatusOr<TrainingResult> {
    const auto drop = [p] { return MakeLayer(torch::nn::Dropout(p)); };
    const TrainingTask task = TaskWith({LinearLayer("a", 5, 6),
                                        {.name = "drop", .build = drop},
                                        LinearLayer("b", 6, 6),
                                        {.name = "drop2", .build = drop},
                                        LinearLayer("c", 6, 4)});
    RZ_ASSIGN_OR_RETURN(
        const PlannedTask planned,
        PlanTask(task,
                 {.workers = workers, .laps = 4 / workers, .stages = stages, .iterations = 3}));
    return RunRing(task, planned);
  };
  at::manual_seed(7);
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  RZ_ASSIGN(const TrainingResult alone, train(0.25, 1, 1));
  for (const auto& [workers, stages] : {std::pair(1, 5), std::pair(2, 2), std::pair(4, 5)}) {
    RZ_ASSIGN(const TrainingResult found, train(0.25, workers, stages));
    EXPECT_TRUE(found == alone) << workers << " workers, " << stages << " stages";
  }
  RZ_ASSIGN(const TrainingResult without, train(0, 1, 1));
  EXPECT_FALSE(without == alone);
  EXPECT_TRUE(before.equal(generator.get_state()));
}

// Notes what it draws.
struct Drawing : Layer {
  explicit Drawing(std::vector<float>& to) : drawn(to) {}
  TensorList forward(TensorList x) override {
    if (is_training()) drawn.push_back(at::rand({1}).item<float>());
    return x;
  }
  bool draws() override { return true; }
  std::vector<float>& drawn;
};

TEST(HooksTest, EveryLayerOfEveryMicroBatchDrawsItsOwn) {
  std::vector<float> first, again;
  for (std::vector<float>* drawn : {&first, &again}) {
    const auto drawing = [drawn] { return std::make_shared<Drawing>(*drawn); };
    const TrainingTask task = TaskWith({LinearLayer("a", 5, 6),
                                        {.name = "d1", .build = drawing},
                                        LinearLayer("b", 6, 4),
                                        {.name = "d2", .build = drawing}});
    RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.laps = 2, .stages = 2, .iterations = 3}));
    RZ_ASSIGN(const TrainingResult result, RunRing(task, planned));
    EXPECT_EQ(drawn->size(), 12u);
  }
  EXPECT_EQ(first, again);
  EXPECT_EQ(std::set<float>(first.begin(), first.end()).size(), first.size());
}

TEST(HooksTest, AStageThatCutsTheGraph) {
  // Nothing before "cut" gets a gradient; its stages still have their place in the program.
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), LinearLayer("b", 6, 6),
                       OneToOne("cut", [](at::Tensor x) { return x.detach(); }),
                       LinearLayer("c", 6, 6), LinearLayer("d", 6, 4)}));
}

}  // namespace
}  // namespace ringzero
