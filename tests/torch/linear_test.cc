// Linear is at::linear to the bit, whatever takes its weights' gradients.
#include "integrations/torch/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "integrations/torch/layer.h"
#include "tests/support/commit_seed.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

class Sink final : public GradientSink {
 public:
  explicit Sink(bool takes) : takes_(takes) { SetCurrentGradientSink(self_); }
  int64_t OnUse(const at::Tensor&) override { return ++uses; }
  bool TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
                   const at::Tensor& x) override {
    EXPECT_EQ(use, uses);
    EXPECT_EQ(weight.size(0), grad.size(1));
    product = grad.t().mm(x);
    return takes_;
  }
  int64_t uses = 0;
  at::Tensor product;

 private:
  const bool takes_;
  const std::shared_ptr<GradientSink> self_{this, [](GradientSink*) {}};
};

struct ProductCase {
  std::vector<int64_t> x;
  bool bias, learns_x, transposed;
};

// y's gradient is no constant, so that nothing is accidentally symmetric.
std::vector<at::Tensor> Differentiate(
    const ProductCase& c,
    const std::function<at::Tensor(at::Tensor, at::Tensor, at::Tensor)>& linear) {
  torch::manual_seed(7);
  std::vector<int64_t> sizes = c.x;
  if (c.transposed) std::swap(sizes[0], sizes[sizes.size() - 2]);
  at::Tensor x = torch::randn(sizes);
  if (c.transposed) x = x.transpose(0, static_cast<int64_t>(sizes.size()) - 2).detach();
  x.set_requires_grad(c.learns_x);
  at::Tensor weight = torch::randn({6, c.x.back()}, torch::requires_grad());
  at::Tensor bias = c.bias ? torch::randn({6}, torch::requires_grad()) : at::Tensor();
  at::Tensor y = linear(x, weight, bias);
  y.mul_(0.5);  // in place
  (y.sin() * torch::randn_like(y)).sum().backward();
  return {y, x.grad(), weight.grad(), c.bias ? bias.grad() : at::Tensor()};
}

TEST(LinearTest, TheBitsOfTorchs) {
  for (const ProductCase& c : std::vector<ProductCase>{{{5, 4}, true, true, false},
                                                       {{2, 3, 4}, true, true, false},
                                                       {{2, 3, 4}, false, true, false},
                                                       {{2, 3, 4}, true, false, false},
                                                       {{2, 3, 4}, true, true, true},
                                                       {{2, 2, 3, 4}, false, true, true},
                                                       {{1, 4}, true, true, false}}) {
    SCOPED_TRACE(::testing::PrintToString(c.x) + (c.bias ? " bias" : "") +
                 (c.transposed ? " transposed" : ""));
    const auto torchs = Differentiate(
        c, [](at::Tensor x, at::Tensor w, at::Tensor b) { return at::linear(x, w, b); });
    for (const bool takes : {false, true}) {
      Sink sink(takes);
      const auto ours = Differentiate(
          c, [](at::Tensor x, at::Tensor w, at::Tensor b) { return Linear(x, w, b); });
      EXPECT_TRUE(at::equal(ours[0], torchs[0]));
      EXPECT_EQ(ours[1].defined(), c.learns_x);
      if (c.learns_x) {
        EXPECT_TRUE(at::equal(ours[1], torchs[1]));
      }
      const bool taken = takes && !c.transposed;
      EXPECT_EQ(ours[2].defined(), !taken);
      EXPECT_TRUE(at::equal(taken ? sink.product : ours[2], torchs[2]));
      if (c.bias) {
        EXPECT_TRUE(at::equal(ours[3], torchs[3]));
      }
    }
  }
}

TEST(LinearTest, ASinkMayBeGone) {
  { const Sink sink(true); }
  EXPECT_EQ(CurrentGradientSink(), nullptr);
  Linear(torch::randn({2, 4}), torch::randn({3, 4}, torch::requires_grad())).sum().backward();
}

TEST(LinearTest, AutocastIsTorchsBusiness) {
  Sink sink(true);
  const at::Tensor weight = torch::randn({3, 4}, torch::requires_grad());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_cache_enabled(false);
  const at::Tensor y = Linear(torch::randn({2, 4}), weight);
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_FALSE(sink.product.defined());
  EXPECT_EQ(sink.uses, 1);
}

TEST(LinearTest, NoSinkIsAskedWithoutAGraph) {
  Sink sink(true);
  const at::Tensor weight = torch::randn({3, 4}, torch::requires_grad());
  {
    const at::NoGradGuard no_grad;
    Linear(torch::randn({2, 4}), weight);
  }
  Linear(torch::randn({2, 4}), weight.detach());
  EXPECT_EQ(sink.uses, 2);  // readings they are
  const at::Tensor y = Linear(torch::randn({2, 4}), weight);
  // A graph of the gradient itself needs the gradient.
  const auto gradient =
      torch::autograd::grad({y.sin().sum()}, {weight}, {}, true, /*create_graph=*/true);
  EXPECT_TRUE(gradient[0].requires_grad());
  EXPECT_FALSE(sink.product.defined());
}

// From 1 to `most`, each power of two as often as any other.
int64_t DrawSize(std::mt19937_64& engine, double most) {
  return std::llround(
      std::exp2(std::uniform_real_distribution<double>(0, std::log2(most))(engine)));
}

// Which shapes are added so depends on the library and the processor. Where one is, its bits are
// those of a product that was made first (cyclic.products_first).
TEST(LinearTest, AnAddedProductIsAProductAndAnAddition) {
  constexpr int kShapes = 200;
  std::mt19937_64 engine(CommitSeed());
  int added = 0;
  for (int i = 0; i < kShapes; ++i) {
    const int64_t rows = DrawSize(engine, 1024);
    const int64_t out = 60 + DrawSize(engine, 256);
    const int64_t in = 60 + DrawSize(engine, 256);
    torch::manual_seed(engine());
    const at::Tensor grad = torch::randn({rows, out}) * 1e-3;
    const at::Tensor x = torch::randn({rows, in}).exp();
    at::Tensor sum = torch::randn({out, in}) * 1e-2;
    const at::Tensor before = sum.clone();
    const at::Tensor wanted = sum + grad.t().mm(x);
    const bool done = AddProduct(grad, x, sum);
    EXPECT_TRUE(at::equal(sum, done ? wanted : before)) << rows << " " << out << " " << in;
    added += done;
  }
  RecordProperty("shapes_added", added);
}

TEST(LinearTest, TheUsersRandomNumbersStay) {
  torch::manual_seed(3);
  const at::Tensor first = torch::randn({4});
  torch::manual_seed(3);
  AddProduct(torch::ones({11, 13}), torch::ones({11, 17}), torch::zeros({13, 17}));
  EXPECT_TRUE(at::equal(torch::randn({4}), first));
}

// A layer of Linears; `uses` says how its weight is read.
class Reader final : public Layer {
 public:
  using Uses = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;
  Reader(int64_t out, int64_t in, Uses uses)
      : weight_(register_parameter("weight", torch::randn({out, in}) * 0.1)),
        uses_(std::move(uses)) {}
  TensorList forward(TensorList inputs) override {
    inputs[0] = uses_(inputs[0], weight_);
    return inputs;
  }

 private:
  at::Tensor weight_;
  Uses uses_;
};

LayerFactory Reads(const std::string& name, int64_t out, int64_t in, Reader::Uses uses) {
  return {.name = name,
          .build = [=] { return std::make_shared<Reader>(out, in, uses); },
          .cost = LayerCost{2 * out * in, 4 * out * in}};
}

at::Tensor Once(const at::Tensor& x, const at::Tensor& weight) { return Linear(x, weight).tanh(); }
at::Tensor Twice(const at::Tensor& x, const at::Tensor& weight) {
  return Linear(Linear(x, weight).tanh(), weight);
}

TrainingTask LinearTask(std::vector<LayerFactory> layers) {
  return MakeTask(std::move(layers), {24, 5}, 4);
}

// An output that the loss does not need: its weight has no gradient, and no update.
class TwoHeads final : public Layer {
 public:
  TwoHeads()
      : used_(register_parameter("used", torch::randn({4, 64}) * 0.1)),
        unused_(register_parameter("unused", torch::randn({4, 64}) * 0.1)) {}
  TensorList forward(TensorList inputs) override {
    return {Linear(inputs[0], used_), Linear(inputs[0], unused_)};
  }

 private:
  at::Tensor used_, unused_;
};

TEST(LinearTest, AnOutputThatTheLossDoesNotNeed) {
  TrainingTask task = LinearTask({Reads("a", 64, 5, Once)});
  task.layers.push_back({.name = "heads",
                         .build = [] { return std::make_shared<TwoHeads>(); },
                         .cost = LayerCost{1024, 2048}});
  task.optimizer = {.type = OptimizerOptions::Type::kAdamW, .learning_rate = 0.1};
  task.optimizer.adamw.weight_decay = 0.1;
  ExpectReferenceBits(
      task, PlanTask(task, {.workers = 2, .rule = Rule::kCdpV2, .stages = 2, .iterations = 3}));
}

TEST(LinearTest, OnARingItIsTheReference) {
  TrainingTask task =
      LinearTask({Reads("a", 64, 5, Once), Reads("b", 64, 64, Twice), Reads("c", 64, 64, Once),
                  Reads("d", 64, 64, Once), Reads("e", 64, 64, Once), Reads("f", 4, 64, Once)});
  task.layers[3].tied = {{.parameter = "weight", .target = "c.weight"}};
  for (const int n : {1, 2, 3}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (const int laps : {1, 2}) {
        ExpectReferenceBits(
            task,
            PlanTask(task,
                     {.workers = n, .laps = laps, .rule = rule, .stages = 6, .iterations = 3}));
      }
    }
  }
}

std::atomic<int> added_products = 0;  // that AddProduct made or tried, in this process

// While it lives, `added_products` counts.
class CountsAddedProducts {
 public:
  CountsAddedProducts()
      : callback_(at::addGlobalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& function) {
              if (std::strcmp(function.name(), "aten::addmm_") == 0) ++added_products;
              return std::unique_ptr<at::ObserverContext>();
            }).scopes({at::RecordScope::FUNCTION}))) {
    added_products = 0;
  }
  ~CountsAddedProducts() { at::removeCallback(callback_); }

 private:
  const at::CallbackHandle callback_;
};

// What a stage's sum holds when its product is ready is chance: the switch takes no chance.
TEST(LinearTest, ProductsThatAreAlwaysMadeFirstHaveTheSameBits) {
  const TrainingTask task =
      LinearTask({Reads("a", 64, 5, Once), Reads("b", 96, 64, Once), Reads("c", 4, 96, Once)});
  for (const int n : {1, 2, 3}) {
    RZ_ASSIGN(const PlannedTask planned,
              PlanTask(task, {.workers = n, .laps = 2, .stages = 3, .iterations = 3}));
    const CountsAddedProducts counts;
    const absl::StatusOr<TrainingResult> added = RunRing(task, planned);
    if (n == 1) {  // its second lap finds the first one's sums
      EXPECT_GT(added_products, 0);
    }
    added_products = 0;
    const absl::StatusOr<TrainingResult> first = RunRing(task, planned, {.products_first = true});
    EXPECT_EQ(added_products, 0) << n;
    ASSERT_TRUE(added.ok() && first.ok()) << added.status() << first.status();
    EXPECT_EQ(first->losses, added->losses) << n;
    EXPECT_EQ(first->parameters, added->parameters) << n;
  }
}

TEST(LinearTest, AWeightThatIsReadElsewhereTooIsNamed) {
  const TrainingTask task = LinearTask(
      {Reads("a", 64, 5, Once), Reads("b", 4, 64, [](const at::Tensor& x, const at::Tensor& w) {
         return Linear(x, w) + w.pow(2).sum();
       })});
  RZ_ASSIGN(const PlannedTask planned,
            PlanTask(task, {.rule = Rule::kCdpV2, .stages = 2, .iterations = 2}));
  EXPECT_THAT(RunRing(task, planned, {}),
              Says("\"b.weight\" is read by ringzero::Linear and elsewhere"));
}

}  // namespace
}  // namespace ringzero
