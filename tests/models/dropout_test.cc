// Dropout by counter: its statistics, what its mask depends on, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "integrations/torch/layer.h"
#include "integrations/torch/models/parts.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

at::Tensor MaskOf(MicroBatchContext context, int64_t size = 1000, int draws_before = 0) {
  MicroBatchScope scope(context);
  Dropout dropout(0.5);
  for (int i = 0; i < draws_before; ++i) dropout.forward(at::ones({3}));
  return dropout.forward(at::ones({size}));
}

TEST(Dropout, DropsTheGivenShareAndKeepsTheMean) {
  for (double p : {0.1, 0.5, 0.9}) {
    MicroBatchScope scope({.seed = 1});
    constexpr int64_t kSize = 1000003;  // no multiple of a block
    const at::Tensor y = Dropout(p).forward(at::ones({kSize}));
    const double dropped = y.eq(0).sum().item<double>() / kSize;
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / kSize));
    const at::Tensor kept = y.masked_select(y.ne(0));
    EXPECT_FLOAT_EQ(kept.min().item<float>(), static_cast<float>(1 / (1 - p)));
    EXPECT_FLOAT_EQ(kept.max().item<float>(), static_cast<float>(1 / (1 - p)));
    // Neighbours are independent.
    const at::Tensor drop = y.eq(0).to(at::kDouble) - p;
    const double together = (drop.slice(0, 1) * drop.slice(0, 0, -1)).mean().item<double>();
    EXPECT_NEAR(together, 0, 5 * p * (1 - p) / std::sqrt(kSize));
  }
}

TEST(Dropout, IsAFunctionOfTheContextAlone) {
  const MicroBatchContext context = {.seed = 1, .iteration = 2, .micro_batch = 3, .layer = 4};
  const at::Tensor mask = MaskOf(context);
  EXPECT_TRUE(mask.equal(MaskOf(context)));
  EXPECT_TRUE(mask.slice(0, 0, 10).equal(MaskOf(context, 10)));  // an element's index is its place
  for (int field = 0; field < 5; ++field) {
    MicroBatchContext other = context;
    if (field == 0) ++other.seed;
    if (field == 1) ++other.iteration;
    if (field == 2) ++other.micro_batch;
    if (field == 3) ++other.layer;
    if (field == 4) ++other.call;
    EXPECT_NEAR(mask.eq(MaskOf(other)).to(at::kFloat).mean().item<float>(), 0.5, 0.08) << field;
  }
  MicroBatchContext second = context;
  second.call = 1;
  EXPECT_TRUE(MaskOf(second).equal(MaskOf(context, 1000, 1)));  // each forward is one draw
}

// A change here would change every run that was ever recorded.
TEST(Dropout, KnownAnswer) {
  const at::Tensor kept =
      MaskOf({.seed = 1, .iteration = 2, .micro_batch = 3, .layer = 4}, 16).ne(0);
  std::string bits;
  for (int i = 0; i < 16; ++i) bits += kept[i].item<bool>() ? '1' : '0';
  EXPECT_EQ(bits, "0110100101100001");
}

TEST(Dropout, GradientUsesTheSameMask) {
  MicroBatchScope scope({.seed = 1});
  const at::Tensor x = at::ones({4, 50}).requires_grad_();
  const at::Tensor y = Dropout(0.3).forward(x * 2);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

TEST(Dropout, IndexIsRowMajorWhateverTheStrides) {
  const at::Tensor x = at::ones({30, 20});
  MicroBatchScope scope({.seed = 1});
  const at::Tensor a = Dropout(0.5).forward(x);
  CurrentContext()->call = 0;
  const at::Tensor b = Dropout(0.5).forward(at::ones({20, 30}).t());
  EXPECT_TRUE(a.equal(b));
}

TEST(Dropout, IsTheIdentityInEvaluationAndForZero) {
  Dropout dropout(0.5);
  dropout.eval();
  const at::Tensor x = at::ones({5});
  EXPECT_TRUE(dropout.forward(x).is_same(x));
  EXPECT_TRUE(Dropout(0).forward(x).is_same(x));
}

TEST(Dropout, ErrorsSayWhatToDo) {
  try {
    Dropout(0.5).forward(at::ones({5}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr("MicroBatchScope"));
  }
  EXPECT_THROW(Dropout(1.0), c10::Error);
  EXPECT_THROW(Dropout(-0.1), c10::Error);
  EXPECT_THROW(Dropout{NAN}, c10::Error);
}

}  // namespace
}  // namespace ringzero
