// What the hooks refuse: each is one clear error, and where one can go on, going on is right.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "integrations/torch/layer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
    task.layers[1] = {.name = "throws",
                      .build = [] { return std::make_shared<Throws>(); },
                      .cost = LayerCost{1, 1}};
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
    task.layers[1] = {.name = "late",
                      .build =
                          [&built] {
                            const auto late = std::make_shared<LateGradient>();
                            if (built.expired()) built = late;
                            return late;
                          },
                      .cost = LayerCost{1, 1}};
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
  task.layers[1] = {
      .name = "twice", .build = [] { return std::make_shared<Twice>(); }, .cost = LayerCost{1, 1}};
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
  task.layers[1] = {.name = "counter", .build = [] { return std::make_shared<Counter>(); }};
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
