// Precision: what DeepSpeed's sections and cyclic.wire make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "zero/config/config.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

constexpr char kRun[] = R"({
  "model": {"type": "mlp", "hidden": [8]},
  "data": {"type": "random", "samples": 64, "input": [4], "classes": 2},
  "iterations": 2,
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
})";

absl::StatusOr<Precision> Read(const std::vector<std::string>& sets) {
  const absl::StatusOr<Config> config =
      ParseConfig(kRun, {.file = "run.json", .overrides = sets, .environment = {}});
  if (!config.ok()) return config.status();
  return config->precision;
}

TEST(PrecisionTest, AllIsFp32UnlessSaid) {
  const absl::StatusOr<Precision> found = Read({});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->compute, ValueType::kFp32);
  EXPECT_EQ(found->parameters, ValueType::kFp32);
  EXPECT_EQ(found->sums, ValueType::kFp32);
  EXPECT_EQ(found->loss_scale, 1);
}

TEST(PrecisionTest, ParametersTravelInTheTypeThatComputes) {
  const absl::StatusOr<Precision> bf16 = Read({"bf16.enabled=true"});
  ASSERT_TRUE(bf16.ok()) << bf16.status();
  EXPECT_EQ(bf16->compute, ValueType::kBf16);
  EXPECT_EQ(bf16->parameters, ValueType::kBf16);
  EXPECT_EQ(bf16->sums, ValueType::kFp32);
  const absl::StatusOr<Precision> fp16 = Read({"fp16.enabled=true", "fp16.loss_scale=128"});
  ASSERT_TRUE(fp16.ok()) << fp16.status();
  EXPECT_EQ(fp16->compute, ValueType::kFp16);
  EXPECT_EQ(fp16->parameters, ValueType::kFp16);
  EXPECT_EQ(fp16->loss_scale, 128);
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

TEST(PrecisionTest, ADynamicLossScaleIsRefused) {
  EXPECT_THAT(Read({"fp16.enabled=true"}).status().message(),
              HasSubstr("fp16.loss_scale: 0 is a dynamic loss scale, which is not built yet"));
}

}  // namespace
}  // namespace ringzero
