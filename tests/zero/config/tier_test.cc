// A worker's tier file, as the configuration wants it.
#include "zero/config/tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One stage with a parameter of 70,000 values, whose state streams.
PlannedModel Streaming() {
  PlannedModel planned;
  planned.layouts.push_back(StageLayout::Make({{.name = "w", .shape = {70'000}}}, {}));
  planned.plan.staging_bytes = 2 << 20;
  planned.plan.stages.push_back({.name = "w", .sum_bytes = planned.layouts[0].sum_bytes});
  planned.plan.stages[0].streamed_bytes = 2 * 70'016 * 4;
  return planned;
}

Config In(const std::string& folder) {
  Config config;
  config.optimizer.type = OptimizerOptions::Type::kAdamW;
  config.offload = {.device = OffloadConfig::Device::kNvme, .nvme_path = folder};
  return config;
}

TEST(OpenTier, HasRoomForAllThatStreams) {
  RZ_ASSIGN(const auto tier, OpenTier(In(testing::TempDir()), Streaming(), WorkerId(0)));
  ASSERT_NE(tier.options.file, nullptr);
  EXPECT_EQ(tier.options.file->bytes(), 4096 + 2 * 69 * 4096);
  EXPECT_EQ(tier.options.folder, testing::TempDir());
  EXPECT_EQ(tier.options.file_name, absl::StrCat("files in ", testing::TempDir()));
}

TEST(OpenTier, MakesNoFileWhereNothingStreams) {
  PlannedModel planned = Streaming();
  planned.plan.stages[0].streamed_bytes = 0;
  RZ_ASSIGN(const auto tier, OpenTier(In("/nowhere"), planned, WorkerId(0)));
  EXPECT_EQ(tier.options.file, nullptr);
}

TEST(OpenTier, SaysWhatTheFolderDoesNotGive) {
  Config config = In("/dev/shm");
  config.offload.io.kind = IoEngineOptions::Kind::kThreads;
  RZ_ASSIGN(const auto tier, OpenTier(config, Streaming(), WorkerId(0)));
  EXPECT_THAT(tier.notes, ElementsAre("/dev/shm: threads (asked for)",
                                      HasSubstr("/dev/shm is memory (tmpfs)")));
  const auto missing = OpenTier(In("/nowhere"), Streaming(), WorkerId(0));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(kNvmePathKey));
}

}  // namespace
}  // namespace ringzero
