// Models that strain the hooks: each still gives the reference's bits, alone and on a ring. What
// the hooks refuse: each is one clear error, and where one can go on, going on is right.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/layer_parts.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LayerFactory Lists(const std::string& name, std::function<TensorList(TensorList)> f) {
  return {.name = name, .build = [f] { return MakeLayer(f); }};
}

// A layer whose cost cannot be counted.
template <typename OneLayer>
LayerFactory Own(const std::string& name) {
  return {.name = name,
          .build = [] { return std::make_shared<OneLayer>(); },
          .cost = LayerCost{100, 200}};
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
  const TrainingTask task =
      TaskWith({LinearLayer("a", 5, 6), Own<Fickle>("fickle"), LinearLayer("b", 6, 4)});
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
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), Own<WeightNormed>("n1"), Own<WeightNormed>("n2"),
                       LinearLayer("b", 6, 4)}));
  ExpectBits(TaskWith({OneToOne("pad",
                                [](at::Tensor x) {
                                  return at::constant_pad_nd(x, {0, 1});
                                }),
                       Own<WeightNormed>("n1"), LinearLayer("b", 6, 4)}));
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
  ExpectBits(TaskWith({LinearLayer("a", 5, 6), Own<Sliced>("sliced"), LinearLayer("b", 6, 4)}));
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

struct Lone {
  TrainingTask task;
  std::unique_ptr<RingModel> model;
  at::Tensor Loss() {
    const TaskBatch batch = task.batch(0, 0, false);
    return task.loss(model->Forward(batch.inputs), batch.target);
  }
};

// One worker, one layer a stage.
Lone MakeLone(TrainingTask task, int iterations = 3) {
  Lone lone;
  lone.task = std::move(task);
  const absl::StatusOr<PlannedTask> planned = PlanTask(
      lone.task,
      {.rule = Rule::kCdpV2, .stages = int(lone.task.layers.size()), .iterations = iterations});
  RZ_CHECK(planned.ok(), planned.status().ToString());
  absl::StatusOr<std::unique_ptr<RingModel>> model = MakeLoneModel(lone.task, *planned);
  RZ_CHECK(model.ok(), model.status().ToString());
  lone.model = *std::move(model);
  return lone;
}

absl::Status Backward(const at::Tensor& loss, bool retain_graph = false) {
  return Guard([&] {
    loss.backward({}, retain_graph);
    return absl::OkStatus();
  });
}

absl::Status Forward(Lone& lone) {
  return Guard([&] {
    lone.Loss();
    return absl::OkStatus();
  });
}

TEST(HookErrorsTest, RetainGraph) {
  Lone lone = MakeLone(MlpTask(3));
  EXPECT_THAT(Backward(lone.Loss(), true), Says("retain_graph"));
}

TEST(HookErrorsTest, SecondBackward) {
  Lone lone = MakeLone(MlpTask(3));
  const TaskBatch batch = lone.task.batch(0, 0, false);
  const at::Tensor out = lone.model->Forward(batch.inputs)[0];
  const at::Tensor one = out.sum(), two = out.mean();
  EXPECT_TRUE(Backward(one).ok());
  EXPECT_THAT(Backward(two),
              Says(AllOf(HasSubstr("second backward"), HasSubstr("stage 4 (linear2)"))));
  // The first one's gradients are whole.
  EXPECT_TRUE(lone.model->EndMicroBatch({0.0}).ok());
  // A graph of an earlier micro-batch.
  const at::Tensor next = lone.Loss();
  EXPECT_THAT(Backward(two), Says("second backward"));
  EXPECT_TRUE(Backward(next).ok());
  EXPECT_TRUE(lone.model->EndMicroBatch({0.0}).ok());
}

TEST(HookErrorsTest, AnotherThreadsBackward) {
  Lone lone = MakeLone(MlpTask(3));
  const at::Tensor loss = lone.Loss();
  absl::Status status;
  std::thread([&] { status = Backward(loss); }).join();
  EXPECT_THAT(status, Says("another thread"));
}

TEST(HookErrorsTest, AutocastsCache) {
  Lone lone = MakeLone(MlpTask(3));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const absl::Status status = Forward(lone);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_THAT(status, Says("autocast"));
}

TEST(HookErrorsTest, InputThatRequiresAGradient) {
  Lone lone = MakeLone(MlpTask(3));
  const absl::Status status = Guard([&] {
    lone.model->Forward({at::zeros({3, 7}).requires_grad_()});
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(HookErrorsTest, OrderOfCalls) {
  Lone lone = MakeLone(MlpTask(3), 1);
  EXPECT_THAT(lone.model->EndMicroBatch({0.0}), Says("before"));
  at::Tensor loss = lone.Loss();
  EXPECT_THAT(Forward(lone), Says("EndMicroBatch is missing"));
  EXPECT_THAT(lone.model->EndMicroBatch({0.0}), Says("loss.backward()"));
  EXPECT_TRUE(Backward(loss).ok());
  EXPECT_TRUE(lone.model->EndMicroBatch({0.0}).ok());
  EXPECT_THAT(Forward(lone), Says("no more micro-batches"));
}

// Throws in the backward when told to.
struct Bomb : torch::autograd::Function<Bomb> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x, bool armed) {
    context->saved_data["armed"] = armed;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (context->saved_data["armed"].toBool()) throw std::runtime_error("bang");
    return {gradients[0], at::Tensor()};
  }
};

// Whether `CurrentContext` is the micro-batch in which things go wrong.
bool Armed() {
  const MicroBatchContext* context = CurrentContext();
  return context != nullptr && context->iteration == 1 && context->micro_batch == 1;
}

TrainingTask BombTask(bool in_backward) {
  TrainingTask task = MlpTask(4);
  task.layers[3] = {.name = "bomb", .build = [in_backward] {
                      return MakeLayer([in_backward](at::Tensor x) {
                        if (!in_backward && Armed()) throw std::runtime_error("bang");
                        return Bomb::apply(x.relu(), in_backward && Armed());
                      });
                    }};
  return task;
}

// The exception passes the user's loop; the micro-batch can neither be ended nor repeated.
TEST(HookErrorsTest, AnExceptionEndsTheRunWithItsStage) {
  for (const bool in_backward : {false, true}) {
    const TrainingTask task = BombTask(in_backward);
    RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.workers = 1,
                                                         .laps = 2,
                                                         .rule = Rule::kCdpV2,
                                                         .stages = int(task.layers.size()),
                                                         .iterations = 3}));
    const auto step = [&](RingModel& model, const LapTask&, const TaskBatch& batch) {
      const absl::Status failed = TrainStep(task, model, batch);
      if (failed.ok()) return failed;
      EXPECT_THAT(failed, Says("bang"));
      const absl::Status ended = model.EndMicroBatch({0.0});
      EXPECT_THAT(ended, Says("stage 3 (bomb)"));
      const absl::Status again = TrainStep(task, model, batch);
      EXPECT_THAT(again,
                  Says(AllOf(HasSubstr("a forward after a failure"), HasSubstr("stage 3 (bomb)"))));
      return failed;
    };
    EXPECT_THAT(RunRing(task, planned, {.step = step}), Says("bang"));
  }
}

// The generator is the process's: the next model must get it, as it was.
TEST(HookErrorsTest, AnExceptionInALayerThatDraws) {
  struct Throws : Layer {
    TensorList forward(TensorList) override {
      at::rand({1});
      throw std::runtime_error("out of luck");
    }
    bool draws() override { return true; }
  };
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  for (int i = 0; i < 2; ++i) {
    TrainingTask task = MlpTask(3);
    task.layers[1] = Own<Throws>("throws");
    task.layers.resize(2);
    Lone lone = MakeLone(task);
    EXPECT_THAT(Forward(lone), Says("out of luck"));
    EXPECT_TRUE(before.equal(at::detail::getDefaultCPUGenerator().get_state()));
  }
}

TEST(HookErrorsTest, AFailureEndsTheOtherWorkersWithItsReason) {
  const TrainingTask task = BombTask(true);
  RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.workers = 2,
                                                       .rule = Rule::kCdpV2,
                                                       .stages = int(task.layers.size()),
                                                       .iterations = 3}));
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto step = [&](RingModel& model, const LapTask&, const TaskBatch& batch) {
    absl::Status status = TrainStep(task, model, batch);
    std::lock_guard lock(mutex);
    if (!status.ok()) errors.push_back(std::string(status.message()));
    return status;
  };
  EXPECT_FALSE(RunRing(task, planned, {.step = step}).ok());
  ASSERT_FALSE(errors.empty());
  EXPECT_THAT(errors[0], HasSubstr("bang"));
  if (errors.size() > 1) {
    EXPECT_THAT(errors[1], HasSubstr("stage 3 (bomb)"));
  }
}

TEST(HookErrorsDeathTest, ReadingAReleasedParameter) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TrainingTask task = MlpTask(3);
  RZ_ASSIGN(const PlannedTask planned, PlanTask(task, {.rule = Rule::kCdpV2, .stages = 5}));
  at::Tensor kept;  // the user's own handle; built first is what the model keeps
  task.layers[2].build = [&kept] {
    torch::nn::Linear linear(9, 10);
    if (!kept.defined()) kept = linear->weight;
    return MakeLayer(linear);
  };
  RZ_ASSIGN(std::unique_ptr<RingModel> model, MakeLoneModel(task, planned));
  EXPECT_DEATH(kept.sum().item<float>(),
               "released parameter of stage 2 \\(linear1\\): linear1.weight");
}

// A node that runs when all else of its stage is over, whatever the stage's edge says.
struct LateNode : torch::autograd::Node {
  explicit LateNode(torch::autograd::edge_list&& next) : Node(0, std::move(next)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

struct LateGradient : Layer {
  LateGradient() { w = register_parameter("w", torch::ones({9})); }
  TensorList forward(TensorList x) override {
    at::Tensor late = w.detach();
    if (at::GradMode::is_enabled()) {
      torch::autograd::create_gradient_edge(
          late, std::make_shared<LateNode>(torch::autograd::collect_next_edges(w)));
    }
    x[0] = x[0] * late;
    return x;
  }
  at::Tensor w;
};

// A user's hook, in the one slot that a tensor has for such.
struct UsersHook final : torch::autograd::PostAccumulateGradHook {
  explicit UsersHook(int& of) : calls(of) {}
  void operator()(const at::Tensor&) override { ++calls; }
  int& calls;
};

TEST(HookErrorsTest, AGradientAfterItsStageIsOver) {
  for (const bool users : {false, true}) {
    int calls = 0;
    TrainingTask task = MlpTask(3);
    std::weak_ptr<LateGradient> built;
    task.layers[1] = Own<LateGradient>("late");
    task.layers[1].build = [&built] {
      const auto late = std::make_shared<LateGradient>();
      if (built.expired()) built = late;
      return late;
    };
    Lone lone = MakeLone(task);
    if (users) {
      torch::autograd::impl::set_post_acc_grad_hooks(built.lock()->w,
                                                     std::make_unique<UsersHook>(calls));
    }
    EXPECT_THAT(Backward(lone.Loss()), Says(AllOf(HasSubstr("late.w"), HasSubstr("was over"))));
    EXPECT_EQ(calls, users ? 1 : 0);
  }
}

TEST(HookErrorsTest, BatchNormTwiceInOneForward) {
  struct Twice : Layer {
    Twice() : norm(9) { register_module("norm", norm); }
    TensorList forward(TensorList x) override { return {norm(norm(x[0]))}; }
    torch::nn::BatchNorm1d norm;
  };
  TrainingTask task = MlpTask(3);
  task.layers[1] = Own<Twice>("twice");
  Lone lone = MakeLone(task);
  EXPECT_THAT(Forward(lone), Says(AllOf(HasSubstr("twice.norm"), HasSubstr("2 times"))));
}

TEST(HookErrorsTest, AForwardThatWritesABuffer) {
  struct Counter : Layer {
    Counter() { count = register_buffer("count", torch::zeros({1})); }
    TensorList forward(TensorList x) override {
      if (is_training()) count.add_(1);
      return x;
    }
    at::Tensor count;
  };
  TrainingTask task = MlpTask(3);
  task.layers[1] = Own<Counter>("counter");
  Lone lone = MakeLone(task);
  EXPECT_THAT(Forward(lone), Says("counter.count"));
}

TEST(HookErrorsTest, AGraphMayOutliveItsModel) {
  Lone lone = MakeLone(MlpTask(3));
  const at::Tensor loss = lone.Loss();
  lone.model.reset();
  EXPECT_THAT(Backward(loss), Says("gone"));
}

}  // namespace
}  // namespace ringzero
