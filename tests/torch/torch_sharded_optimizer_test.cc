// An optimizer for ordinary loops: torch's steps, and what it says of tensors that it cannot take.
// The same bits for any number of workers: run_loop_test.cc, tests/zero/sharded_optimizer_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "integrations/torch/run_loop.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::HasSubstr;
using Type = OptimizerOptions::Type;

// A matrix, one whose values lie in channels_last order, one that no loss uses, one that is frozen.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    const auto random = [](at::IntArrayRef sizes, uint64_t seed) {
      return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kFloat);
    };
    convolution = register_parameter(
        "convolution", random({5, 3, 2, 2}, 1).contiguous(at::MemoryFormat::ChannelsLast));
    matrix = register_parameter("matrix", random({7, 20}, 2));
    unused = register_parameter("unused", random({4}, 3));
    frozen = register_parameter("frozen", random({7}, 4), /*requires_grad=*/false);
    register_parameter("tied", matrix);
  }
  // The loss of one micro-batch.
  at::Tensor forward(int64_t number) {
    const at::Tensor x = at::randn(
        {6, 3, 3, 3}, at::detail::createCPUGenerator(static_cast<uint64_t>(number)), at::kFloat);
    const at::Tensor y = at::conv2d(x, convolution).flatten(1);
    return (at::linear(y, matrix) + frozen).sin().sum();
  }
  at::Tensor convolution, matrix, unused, frozen;
};
TORCH_MODULE(SmallNet);

// Each once, which parameters() does not promise.
std::vector<at::Tensor> TensorsOf(const SmallNet& net) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& p : ParametersOf(*net)) tensors.push_back(p.tensor);
  return tensors;
}

std::vector<at::Tensor> ValuesOf(const SmallNet& net) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : TensorsOf(net)) values.push_back(tensor.detach().clone());
  return values;
}

OptimizerOptions Sgd() {
  OptimizerOptions options{.type = Type::kSgd, .learning_rate = 0.1};
  options.sgd = {.momentum = 0.9, .weight_decay = 0.01};
  return options;
}

// Torch's own optimizer beside ours, from the same values at each step.
template <typename Torchs>
double LargestDifferenceFromTorchs(const OptimizerOptions& options, SmallNet& theirs,
                                   Torchs& torchs) {
  SmallNet ours;
  auto optimizer = TorchShardedOptimizer::Create(ParametersOf(*ours), {.optimizer = options});
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  double largest = 0;
  for (int step = 0; step < 10; ++step) {
    const std::vector<at::Tensor> before = ValuesOf(ours);
    (*optimizer)->ZeroGrad();
    torchs.zero_grad();
    ours->forward(step).backward();
    theirs->forward(step).backward();
    EXPECT_EQ((*optimizer)->Step(), absl::OkStatus());
    torchs.step();
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> a = TensorsOf(ours), b = TensorsOf(theirs);
    for (size_t p = 0; p < before.size(); ++p) {
      largest = std::max(largest, LargestDifferenceInUlps(a[p], b[p], before[p]));
      b[p].copy_(a[p]);
    }
  }
  const std::vector<at::Tensor> initial = ValuesOf(SmallNet()), now = ValuesOf(ours);
  EXPECT_FALSE(at::equal(now[0], initial[0]));
  EXPECT_FALSE(at::equal(now[1], initial[1]));
  EXPECT_TRUE(at::equal(now[2], initial[2])) << "unused";
  EXPECT_TRUE(at::equal(now[3], initial[3])) << "frozen";
  return largest;
}

TEST(TorchShardedOptimizerTest, StepsAreTorchs) {
  SmallNet first;
  torch::optim::SGD sgd(TensorsOf(first),
                        torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  EXPECT_LE(LargestDifferenceFromTorchs(Sgd(), first, sgd), 1.0);
  SmallNet second;
  torch::optim::AdamW adamw(
      TensorsOf(second),
      torch::optim::AdamWOptions(3e-3).betas({0.9, 0.99}).eps(1e-8).weight_decay(0.05));
  OptimizerOptions options{.type = Type::kAdamW, .learning_rate = 3e-3};
  options.adamw = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.05};
  // Torch's root is now and then the wrong neighbour: docs/decisions/0008.
  EXPECT_LE(LargestDifferenceFromTorchs(options, second, adamw), 2.0);
}

TEST(TorchShardedOptimizerTest, ClipsAsTorchDoes) {
  SmallNet ours, theirs;
  OptimizerOptions options{.type = Type::kSgd, .learning_rate = 1};
  options.max_norm = 0.5;
  RZ_ASSIGN(auto optimizer,
            TorchShardedOptimizer::Create(ParametersOf(*ours), {.optimizer = options}));
  ours->forward(1).backward();
  theirs->forward(1).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(TensorsOf(theirs), 0.5);
  EXPECT_EQ(optimizer->Step(), absl::OkStatus());
  EXPECT_GT(norm, 1);
  EXPECT_NEAR(optimizer->gradient_norm(), norm, 1e-5 * norm);
  const at::Tensor wanted = theirs->matrix.detach() - theirs->matrix.grad();
  EXPECT_TRUE(at::allclose(ours->matrix, wanted, 1e-6, 1e-7));
}

std::string StepOf(const SmallNet& net, const std::function<void()>& spoil) {
  auto optimizer = TorchShardedOptimizer::Create(ParametersOf(*net), {});
  if (!optimizer.ok()) return optimizer.status().ToString();
  spoil();
  return (*optimizer)->Step().ToString();
}

TEST(TorchShardedOptimizerTest, NamesTheGradientThatCannotBe) {
  SmallNet net;
  EXPECT_THAT(StepOf(net,
                     [&] {
                       net->matrix.mutable_grad() = at::ones({20, 7}).t();
                     }),
              HasSubstr("INVALID_ARGUMENT: gradient of \"matrix\": wanted Float on cpu of shape "
                        "[7, 20] with strides [20, 1], found Float on cpu of shape [7, 20] with "
                        "strides [1, 7]"));
  net->matrix.mutable_grad().reset();
  const at::Tensor sparse = at::ones({7, 20}).to_sparse();
  EXPECT_THAT(StepOf(net, [&] { net->matrix.mutable_grad() = sparse; }),
              HasSubstr("found sparse Float on cpu of shape [7, 20]"));
  net->matrix.mutable_grad().reset();
  EXPECT_THAT(StepOf(net, [&] { net->frozen.mutable_grad() = at::ones({7}); }),
              HasSubstr("FAILED_PRECONDITION: parameter \"frozen\" has a gradient, but required "
                        "none"));
  net->frozen.mutable_grad().reset();
  EXPECT_THAT(StepOf(net,
                     [&] {
                       net->matrix.set_data(at::ones({7, 20}));
                     }),
              HasSubstr("parameter \"matrix\" has got other memory since"));
  // A gradient of a single row has no stride to speak of.
  torch::nn::Linear row(5, 1);
  auto optimizer = TorchShardedOptimizer::Create(ParametersOf(*row), {});
  row->weight.mutable_grad() = at::ones({5, 1}).t();
  EXPECT_EQ((*optimizer)->Step(), absl::OkStatus());
}

TEST(TorchShardedOptimizerTest, NamesTheParameterThatCannotBe) {
  const auto refusal = [](const std::vector<NamedTensor>& parameters) {
    return TorchShardedOptimizer::Create(parameters, {}).status().ToString();
  };
  EXPECT_THAT(refusal({{"a", at::ones({2}, at::kDouble)}}),
              HasSubstr("parameter \"a\": wanted Float on cpu, without gaps or overlap, found "
                        "Double on cpu of shape [2]"));
  EXPECT_THAT(refusal({{"a", at::ones({4}).slice(0, 0, 4, 2)}}), HasSubstr("strides [2]"));
  EXPECT_THAT(refusal({{"a", at::Tensor()}}), HasSubstr("found nothing"));
  const at::Tensor whole = at::ones({4});
  EXPECT_THAT(refusal({{"whole", whole}, {"half", whole.slice(0, 2)}}),
              HasSubstr("parameters \"whole\" and \"half\" have memory in common"));
  EXPECT_THAT(refusal({}), HasSubstr("an optimizer without parameters"));
}

// As with torch's optimizers.
TEST(TorchShardedOptimizerTest, AGraphOfBeforeDoesNotGoOnAfterAStep) {
  torch::nn::Linear linear(3, 3);
  RZ_ASSIGN(auto optimizer, TorchShardedOptimizer::Create(ParametersOf(*linear), {}));
  const at::Tensor hidden = linear->forward(at::ones({1, 3}));
  const at::Tensor loss = linear->forward(hidden).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(optimizer->Step(), absl::OkStatus());
  EXPECT_EQ(optimizer->updates(), 1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

}  // namespace
}  // namespace ringzero
