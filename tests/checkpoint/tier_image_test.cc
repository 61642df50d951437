// A tier file becomes a file of safetensors where it is.
#include "integrations/checkpoint/tier_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "integrations/data/safetensors.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

constexpr StageId kFirst(1), kLater(4);

class TierImageTest : public testing::Test {
 protected:
  TierImageTest() {
    options_.type = OptimizerOptions::Type::kAdamW;
    layouts_.resize(6);
    layouts_[1] = StageLayout::Make({{.name = "in.weight", .shape = {300, 1000}}}, {}, kBf16);
    layouts_[4] = StageLayout::Make({{.name = "out.\"weight\"", .shape = {70'000}}}, {}, kBf16);
    std::filesystem::create_directory(folder_);
  }
  ~TierImageTest() override { std::filesystem::remove_all(folder_); }

  // Of two stages with masters; value v of the n-th state is n + v / 2^20.
  TierLayout LayOut() {
    Plan plan{.stages = std::vector<StagePlan>(6)};
    for (const StageId j : {kFirst, kLater}) {
      plan.stages[j.value].streamed_bytes = 1;
      plan.stages[j.value].streams_masters = true;
    }
    return LayOutTier(plan, WorkerId(0), layouts_, options_);
  }
  static float ValueOf(int state, int64_t v) {
    return static_cast<float>(state) + static_cast<float>(v) / (1 << 20);
  }
  static void Fill(const TierLayout& tier, const TierFile& file) {
    int state = 0;
    for (const auto& [stage, pieces] : tier.pieces) {
      for (int s = 0; s < 3; ++s, ++state) {
        for (size_t i = 0; i < pieces.size(); ++i) {
          const Extent& extent = tier.groups[tier.group_of.at(stage)].pieces[i].extents[s];
          auto* const values = reinterpret_cast<float*>(file.mapped() + extent.offset);
          for (int64_t v = pieces[i].begin; v < pieces[i].end; ++v) {
            values[v - pieces[i].begin] = ValueOf(state, v);
          }
        }
      }
    }
  }

  static constexpr Precision kBf16{.compute = ValueType::kBf16, .parameters = ValueType::kBf16};
  const std::string folder_ = absl::StrCat(testing::TempDir(), "/image");
  OptimizerOptions options_;
  std::vector<StageLayout> layouts_;
};

TEST_F(TierImageTest, AnybodyCanReadIt) {
  const TierLayout tier = LayOut();
  RZ_ASSIGN(const TierFile file, TierFile::Create(testing::TempDir(), tier.bytes));
  Fill(tier, file);
  std::map<StageId, std::vector<uint64_t>> checksums;
  for (const StageId j : {kLater, kFirst}) {
    const auto [begin, end] = tier.RunOf(j);
    EXPECT_EQ((begin - tier.head_bytes) % kTierStageBytes, 0);
    checksums[j] = ChecksumsOfPieces({file.mapped() + begin, static_cast<size_t>(end - begin)});
  }
  const std::string path = absl::StrCat(folder_, "/optimizer-tier.safetensors");
  RZ_ASSIGN(const std::string head, LinkTier(tier, layouts_, options_, checksums, file, path));
  RZ_ASSIGN(const auto reader, SafetensorsReader::Open(path));
  EXPECT_EQ(head, ChecksumOfHead(reader->head()));
  EXPECT_EQ(reader->metadata().at("checksum"), ChecksumOfValues(reader->values()));
  int state = 0;
  for (const auto& [name, shape] :
       {std::pair<std::string, std::vector<int64_t>>("in.weight", {300, 1000}),
        std::pair<std::string, std::vector<int64_t>>("out.\"weight\"", {70'000})}) {
    for (const char* of : {"exp_avg", "exp_avg_sq", "master"}) {
      const auto entry = std::ranges::find_if(reader->entries(), [&](const auto& each) {
        return each.spec.name == absl::StrCat(name, ".", of);
      });
      ASSERT_NE(entry, reader->entries().end()) << name << " " << of;
      std::vector<float> values(static_cast<size_t>(NumelOf(shape)));
      ASSERT_TRUE(reader->Read(*entry, shape, std::span(values)).ok());
      for (size_t v = 0; v < values.size(); ++v) {
        ASSERT_EQ(values[v], ValueOf(state, static_cast<int64_t>(v))) << name << " " << of << v;
      }
      ++state;
    }
  }
}

TEST_F(TierImageTest, SaysWhyStatesAreCopied) {
  EXPECT_TRUE(MayTakeTier(LayOut(), layouts_, testing::TempDir(), folder_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const absl::Status elsewhere = MayTakeTier(LayOut(), layouts_, "/dev/shm", folder_);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("Invalid cross-device link"));
  layouts_[4] = StageLayout::Make(
      {{.name = "conv", .shape = {64, 64, 5, 5}, .strides = {1600, 1, 320, 64}}}, {}, kBf16);
  const absl::Status strided = MayTakeTier(LayOut(), layouts_, testing::TempDir(), folder_);
  EXPECT_EQ(strided.message(), "conv does not lie row by row");
}

}  // namespace
}  // namespace ringzero
