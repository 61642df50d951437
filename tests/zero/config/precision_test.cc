// Precision: what DeepSpeed's sections and cyclic.wire make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "zero/config/config.h"

namespace ringzero {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRun[] = R"({
  "model": {"type": "mlp", "hidden": [8]},
  "data": {"type": "random", "samples": 64, "input": [4], "classes": 2},
  "iterations": 2,
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
})";

absl::StatusOr<Precision> Read(const std::vector<std::string>& sets) {
  const absl::StatusOr<Config> config = ParseConfig(kRun, {.file = "run.json", .overrides = sets});
  if (!config.ok()) return config.status();
  return config->precision;
}

TEST(PrecisionTest, AllIsFp32UnlessSaid) {
  const absl::StatusOr<Precision> found = Read({});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->compute, ValueType::kFp32);
  EXPECT_EQ(found->wire(), ValueType::kFp32);
  EXPECT_EQ(found->sums, ValueType::kFp32);
  EXPECT_EQ(found->loss_scale.initial, 1);
  EXPECT_FALSE(found->skip_overflows);
}

TEST(PrecisionTest, ParametersTravelInTheTypeThatComputes) {
  const absl::StatusOr<Precision> bf16 = Read({"bf16.enabled=true"});
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  EXPECT_EQ(bf16->compute, ValueType::kBf16);
  EXPECT_EQ(bf16->wire(), ValueType::kBf16);
  EXPECT_EQ(bf16->sums, ValueType::kFp32);
  const absl::StatusOr<Precision> fp16 = Read({"fp16.enabled=true", "fp16.loss_scale=128"});
  ASSERT_TRUE(fp16.ok()) << fp16.status();
  EXPECT_EQ(fp16->compute, ValueType::kFp16);
  EXPECT_EQ(fp16->wire(), ValueType::kFp16);
  EXPECT_EQ(fp16->loss_scale.initial, 128);
  EXPECT_FALSE(fp16->loss_scale.dynamic);
  const absl::StatusOr<Precision> other =
      Read({"bf16.enabled=true", "cyclic.wire.parameters=fp16"});
  EXPECT_THAT(other.status().message(),
              HasSubstr("cyclic.wire.parameters: fp16, but the model computes in bf16"));
  EXPECT_TRUE(Read({"bf16.enabled=true", "cyclic.wire.parameters=bf16"}).ok());
}

TEST(PrecisionTest, SumsHaveTwoNames) {
  for (const char* set : {"data_types.grad_accum_dtype=bf16", "cyclic.wire.sums=bf16",
                          "data_types.grad_accum_dtype=torch.bfloat16"}) {
    const absl::StatusOr<Precision> found = Read({set});
    ASSERT_TRUE(found.ok()) << set << found.status();
    EXPECT_EQ(found->sums, ValueType::kBf16) << set;
  }
  EXPECT_THAT(Read({"data_types.grad_accum_dtype=fp16"}).status().message(),
              HasSubstr("data_types.grad_accum_dtype"));
  const absl::StatusOr<Precision> both =
      Read({"data_types.grad_accum_dtype=bf16", "cyclic.wire.sums=fp32"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->sums, ValueType::kFp32);
}

TEST(PrecisionTest, TheDynamicLossScaleHasDeepSpeedsKeys) {
  absl::StatusOr<Precision> found = Read({"fp16.enabled=true"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->loss_scale.dynamic);
  EXPECT_EQ(found->loss_scale.initial, 65536);
  EXPECT_EQ(found->loss_scale.window, 1000);
  EXPECT_EQ(found->loss_scale.hysteresis, 2);
  EXPECT_FALSE(found->loss_scale.consecutive_hysteresis);
  EXPECT_EQ(found->loss_scale.minimum, 1);
  found = Read({"fp16.enabled=true", "fp16.initial_scale_power=4", "fp16.loss_scale_window=7",
                "fp16.hysteresis=1", "fp16.consecutive_hysteresis=true", "fp16.min_loss_scale=3"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->loss_scale.initial, 16);
  EXPECT_EQ(found->loss_scale.window, 7);
  EXPECT_EQ(found->loss_scale.hysteresis, 1);
  EXPECT_TRUE(found->loss_scale.consecutive_hysteresis);
  EXPECT_EQ(found->loss_scale.minimum, 3);
  EXPECT_THAT(Read({"fp16.enabled=true", "fp16.initial_scale_power=200"}).status().message(),
              HasSubstr("fp16.initial_scale_power: wanted -126 to 127, as a float has, found 200"));
}

// In stage 0 DeepSpeed has another rule, without a hysteresis and without an end.
TEST(PrecisionTest, TheDynamicLossScaleOfStage0SaysWhatDoesNothing) {
  using AtMinimum = LossScaleOptions::AtMinimum;
  const auto read = [](const std::vector<std::string>& sets) {
    return *ParseConfig(kRun, {.file = "run.json", .overrides = sets});
  };
  const std::string fp16 = "fp16.enabled=true", plain = "zero_optimization.stage=0";
  const Config said = read({fp16, plain, "fp16.hysteresis=3"});
  EXPECT_EQ(said.precision.loss_scale.hysteresis, 1);
  EXPECT_EQ(said.precision.loss_scale.at_minimum, AtMinimum::kStays);
  EXPECT_THAT(said.notes, Contains(HasSubstr("fp16.hysteresis: does nothing in stage 0")));
  EXPECT_THAT(read({fp16, plain}).notes, Not(Contains(HasSubstr("fp16"))));
  // Without a stage it is 3 here and 0 there.
  const Config silent = read({fp16});
  EXPECT_EQ(silent.precision.loss_scale.at_minimum, AtMinimum::kEndsRun);
  EXPECT_THAT(silent.notes, Contains(HasSubstr("without zero_optimization the loss scale")));
  const Config never = read({fp16, "zero_optimization.stage=1", "fp16.hysteresis=0"});
  EXPECT_EQ(never.precision.loss_scale.hysteresis, 0);
  EXPECT_THAT(never.notes, Contains(HasSubstr("fp16.hysteresis: below 1 the loss scale is never")));
  EXPECT_THAT(read({fp16, "fp16.loss_scale=8"}).notes, Not(Contains(HasSubstr("fp16"))));
}

TEST(PrecisionTest, OverflowsAreSkippedInHalfPrecision) {
  EXPECT_TRUE(Read({"fp16.enabled=true", "fp16.loss_scale=8"})->skip_overflows);
  EXPECT_TRUE(Read({"bf16.enabled=true"})->skip_overflows);
  EXPECT_FALSE(Read({"bf16.enabled=true", "bf16.check_grad_overflow=false"})->skip_overflows);
}

TEST(PrecisionTest, SkippingNeedsTheStrictFormAndItsOwnNorm) {
  const auto read = [](const std::vector<std::string>& sets) {
    return ParseConfig(kRun, {.file = "run.json", .overrides = sets});
  };
  const std::string fp16 = "fp16.enabled=true", v2 = "cyclic.rule=cdp_v2";
  EXPECT_TRUE(read({fp16, v2, "gradient_clipping=0"})->cyclic.strict);
  EXPECT_THAT(read({fp16, v2, "cyclic.strict=false"}).status().message(),
              HasSubstr("cyclic.strict: must be true with cyclic.rule cdp_v2 where overflows are"));
  EXPECT_THAT(read({fp16, "cyclic.clipping=previous"}).status().message(),
              HasSubstr("cyclic.clipping: previous, but with fp16"));
}

}  // namespace
}  // namespace ringzero
