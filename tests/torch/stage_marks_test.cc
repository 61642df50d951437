// A ready module trains as a list of layers does, and a forward off the plan is refused.
#include "integrations/torch/stage_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "base/check.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() : a(5, 6), norm(6), b(6, 6), c(6, 6), d(6, 4) {
    register_module("a", a);
    register_module("norm", norm);
    register_module("b", b);
    register_module("c", c);
    register_module("d", d);
  }
  torch::nn::Linear a;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear b, c, d;
};

TensorList NetForward(torch::nn::Module& module, StageMarks& marks, TensorList x) {
  NetImpl& net = static_cast<NetImpl&>(module);
  x = marks.Enter(0, x);
  x[0] = net.norm(net.a(x[0])).relu_();
  x = marks.Leave(0, {x[0], x[0]});
  x = marks.Enter(1, x);
  x[0] = net.b(x[0]).tanh();
  x = marks.Leave(1, x);
  x = marks.Enter(2, x);
  x[0] = net.c(x[0]) + x[1];
  x = marks.Leave(2, {x[0]});
  x = marks.Enter(3, x);
  x[0] = net.d(x[0]);
  return marks.Leave(3, x);
}

MarkedModule Net() {
  return {.build = [] { return std::make_shared<NetImpl>(); },
          .forward = NetForward,
          .marks = {{.name = "first", .modules = {"a", "norm"}},
                    {.name = "second", .modules = {"b"}},
                    {.name = "third", .modules = {"c"}},
                    {.name = "last", .modules = {"d"}}},
          .seed = 7};
}

// The same as layers; the values come from the marked module, as it draws them all together.
TrainingTask TaskOf(std::vector<LayerFactory> layers) {
  TrainingTask task = MakeTask(std::move(layers), {3, 5}, 4);
  task.optimizer = {.type = OptimizerOptions::Type::kAdamW, .learning_rate = 0.01};
  return task;
}

// Runs the marked module whole where the reference runs layers one by one.
std::vector<LayerFactory> AsLayers(const std::vector<LayerFactory>& marked) {
  const std::vector<std::function<TensorList(Layer&, TensorList)>> forwards = {
      [](Layer& l, TensorList x) {
        auto a = l.named_children()["a"]->as<torch::nn::Linear>();
        auto norm = l.named_children()["norm"]->as<torch::nn::BatchNorm1d>();
        x[0] = norm->forward(a->forward(x[0])).relu_();
        return TensorList{x[0], x[0]};
      },
      [](Layer& l, TensorList x) {
        x[0] = l.named_children()["b"]->as<torch::nn::Linear>()->forward(x[0]).tanh();
        return x;
      },
      [](Layer& l, TensorList x) {
        return TensorList{l.named_children()["c"]->as<torch::nn::Linear>()->forward(x[0]) + x[1]};
      },
      [](Layer& l, TensorList x) {
        x[0] = l.named_children()["d"]->as<torch::nn::Linear>()->forward(x[0]);
        return x;
      }};
  struct Part : Layer {
    TensorList forward(TensorList x) override { return run(*this, std::move(x)); }
    std::function<TensorList(Layer&, TensorList)> run;
  };
  std::vector<LayerFactory> layers = marked;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].build = [build = marked[i].build, run = forwards[i]] {
      auto part = std::make_shared<Part>();
      part->run = run;
      for (const auto& child : build()->named_children()) {
        part->register_module(child.key(), child.value());
      }
      return part;
    };
  }
  return layers;
}

TEST(StageMarksTest, TrainsLikeLayers) {
  RZ_ASSIGN(const std::vector<LayerFactory> marked, LayersOf(Net(), {at::zeros({1, 5})}));
  EXPECT_EQ(marked[1].cost->forward, 2 * 36 + 12);
  const TrainingTask task = TaskOf(marked), reference_task = TaskOf(AsLayers(marked));
  for (const int stages : {2, 3, 4}) {
    PlanRequest request{
        .workers = 2, .laps = 2, .rule = Rule::kCdpV2, .stages = stages, .iterations = 3};
    request.evaluation = {.every = 1, .laps = 1};
    RZ_ASSIGN(const PlannedTask planned, PlanTask(task, request));
    RZ_ASSIGN(const TrainingResult ring, RunRing(task, planned));
    EXPECT_EQ(ring, TrainReference(reference_task, planned.plan()));
    EXPECT_EQ(ring.parameters.count("first.a.weight"), 1u);
  }
}

std::string RunOnce(MarkedModule net) {
  const auto forward = net.forward;
  net.forward = NetForward;  // to count with
  const absl::StatusOr<std::vector<LayerFactory>> counted = LayersOf(net, {at::zeros({1, 5})});
  RZ_CHECK(counted.ok(), counted.status().ToString());
  net.forward = forward;
  for (size_t i = 0; i < counted->size(); ++i) net.marks[i].cost = (*counted)[i].cost;
  const TrainingTask task = TaskOf(*LayersOf(net, {}));
  const absl::StatusOr<PlannedTask> planned = PlanTask(task, {.rule = Rule::kCdpV2, .stages = 4});
  RZ_CHECK(planned.ok(), planned.status().ToString());
  const absl::StatusOr<std::unique_ptr<RingModel>> model = MakeLoneModel(task, *planned);
  RZ_CHECK(model.ok(), model.status().ToString());
  return std::string(TrainStep(task, **model, task.batch(0, 0, false)).message());
}

TEST(StageMarksTest, TraversalThatDiffersFromThePlan) {
  MarkedModule net = Net();
  net.forward = [](torch::nn::Module& module, StageMarks& marks, TensorList x) {
    NetImpl& n = static_cast<NetImpl&>(module);
    x = marks.Enter(0, x);
    x[0] = n.norm(n.a(x[0]));
    x = marks.Leave(0, x);
    return marks.Enter(2, x);
  };
  EXPECT_THAT(RunOnce(net), AllOf(HasSubstr("mark 2 (third)"), HasSubstr("mark 1 (second)"),
                                  HasSubstr("stage 1 (second)")));
  net.forward = [](torch::nn::Module& module, StageMarks& marks, TensorList x) {
    NetImpl& n = static_cast<NetImpl&>(module);
    x = marks.Enter(0, x);
    x[0] = n.norm(n.a(x[0]));
    return marks.Leave(0, x);
  };
  EXPECT_THAT(RunOnce(net), AllOf(HasSubstr("ended"), HasSubstr("stage 1 (second)")));
  net.forward = [](torch::nn::Module& module, StageMarks& marks, TensorList x) {
    return marks.Leave(4, NetForward(module, marks, std::move(x)));
  };
  EXPECT_THAT(RunOnce(net), HasSubstr("left mark 4, but it is at the end"));
}

TEST(StageMarksTest, Refusals) {
  const TensorList example = {at::zeros({1, 5})};
  MarkedModule net = Net();
  net.marks[1].modules = {"nowhere"};
  EXPECT_THAT(LayersOf(net, example), Says("nowhere"));
  net = Net();
  net.marks[1].modules = {};
  EXPECT_THAT(LayersOf(net, example), Says(AllOf(HasSubstr("b.weight"), HasSubstr("no mark"))));
  net = Net();
  net.marks[2].modules = {"c", "b"};
  EXPECT_THAT(LayersOf(net, example), Says(AllOf(HasSubstr("second"), HasSubstr("third"))));
  EXPECT_THAT(LayersOf(Net(), {}), Says("example"));
}

}  // namespace
}  // namespace ringzero
