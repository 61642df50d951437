// Text and random samples, and the choice of a reader by type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integrations/data/dataset.h"
#include "tests/data/files.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using namespace ringzero::testing;  // NOLINT(google-build-using-namespace): the tests' own helpers
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Text, CutsSamplesWithTheNextByteAsTarget) {
  TemporaryFolder folder;
  const Bytes text = ToBytes("abcdefghijklmnopqrstuvwxyz0123");  // 30 bytes: 27 and 3
  WriteFile(folder / "plain", text);
  WriteFile(folder / "packed", Gzip(text));
  for (const char* name : {"plain", "packed"}) {
    RZ_ASSIGN(const auto dataset, OpenText(folder / name, 2));
    EXPECT_EQ(dataset->shape().kind, SampleShape::Kind::kTokens);
    EXPECT_THAT(dataset->shape().input, ElementsAre(2));
    EXPECT_EQ(dataset->shape().classes, 256);
    EXPECT_EQ(dataset->train().size(), 13);
    EXPECT_EQ(dataset->test().size(), 1);
    std::vector<int64_t> inputs(4), targets(4);
    dataset->train().Read(std::vector<int64_t>{12, 0}, nullptr, inputs.data(), targets.data());
    EXPECT_THAT(inputs, ElementsAre('y', 'z', 'a', 'b'));
    EXPECT_THAT(targets, ElementsAre('z', '0', 'b', 'c'));
    dataset->test().Read(std::vector<int64_t>{0}, nullptr, inputs.data(), targets.data());
    EXPECT_THAT(targets, ElementsAre('2', '3', 'b', 'c'));
  }
}

TEST(Text, ErrorsNameTheFileOrTheKey) {
  TemporaryFolder folder;
  WriteFile(folder / "short", ToBytes("abcdefghijklmnopqrst"));
  EXPECT_THAT(
      OpenText(folder / "short", 2),
      Says(AllOf(HasSubstr(folder / "short"), HasSubstr("20 bytes"), HasSubstr("model.seq"))));
  EXPECT_THAT(OpenText(folder / "short", 0), Says("model.seq is 0"));
  EXPECT_EQ(OpenText(folder / "none", 2).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenText(folder.path(), 2), Says("folder"));
  WriteFile(folder / "empty", {});
  EXPECT_THAT(OpenText(folder / "empty", 2), Says("0 bytes"));
}

// A window of literal codes only: each of 9 bits.
Bytes LiteralWindow(const std::string& text) {
  Bytes packed((9 * text.size() + 7) / 8);
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const size_t at = 9 * i + bit;
      if (text[i] >> bit & 1) packed[at / 8] |= static_cast<uint8_t>(1 << at % 8);
    }
  }
  return packed;
}

Bytes SmallBible() {
  const Bytes first = LiteralWindow("In the b"), second = LiteralWindow("egin");
  Bytes title = ToBytes("EC02Compressed Data File");
  title.resize(84);
  const auto at = static_cast<uint32_t>(92 + 3 * 4);
  const auto middle = static_cast<uint32_t>(at + first.size());
  const auto end = static_cast<uint32_t>(middle + second.size());
  return title + BigEndianWords({8, 2, at, middle, end}, first + second);
}

TEST(BibleText, UnpacksWindows) {
  const Bytes file = SmallBible();
  EXPECT_TRUE(IsBibleData(file));
  RZ_ASSIGN(const auto text, DecodeBibleData(file, "path"));
  EXPECT_EQ(std::string(text.begin(), text.end()), "In the begin");
}

TEST(BibleText, NothingMadeOfItsBytesCrashes) {
  const Bytes file = SmallBible();
  const Bytes all_but_five(file.begin(), file.end() - 5);
  for (const Bytes& shorter : Truncated(all_but_five, 24)) {
    ASSERT_THAT(DecodeBibleData(shorter, "path"), Says("path: ")) << shorter.size();
  }
  for (const Bytes& changed : WithABitChanged(file)) (void)DecodeBibleData(changed, "path");
}

// Every kind of code occurs in the real thing, where its Debian package is installed.
TEST(BibleText, KingJames) {
  const std::string path = "/usr/lib/bible.data";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "bible-kjv-text is not installed";
  RZ_ASSIGN(const auto text, DecodeBibleData(ReadFile(path), path));
  const std::string words(text.begin(), text.end());
  EXPECT_EQ(words.size(), 4404475u);
  EXPECT_EQ(std::count(words.begin(), words.end(), '\n'), 31103);  // a title and the verses
  EXPECT_THAT(words, HasSubstr("\nGe1:1 In the beginning God created the heaven and the earth.\n"));
  EXPECT_TRUE(words.ends_with("The grace of our Lord Jesus Christ be with you all. Amen.\n"));
  RZ_ASSIGN(const auto dataset, OpenText(path, 128));
  EXPECT_EQ(dataset->train().size(), (4404475 - 440447 - 1) / 128);
}

TEST(Random, IsAFunctionOfSeedAndIndex) {
  const DatasetOptions options = {.type = "random",
                                  .random_input = {2, 3},
                                  .random_classes = 4,
                                  .random_samples = 100,
                                  .seed = 5};
  const auto a = OpenDataset(options), b = OpenDataset(options);
  DatasetOptions other = options;
  other.seed = 6;
  const auto c = OpenDataset(other);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ((*a)->train().size(), 100);
  EXPECT_EQ((*a)->test().size(), 10);
  const auto read = [](const Split& split, std::vector<int64_t> indices) {
    std::vector<float> inputs(6 * indices.size());
    std::vector<int64_t> targets(indices.size());
    split.Read(indices, inputs.data(), nullptr, targets.data());
    for (int64_t t : targets) inputs.push_back(static_cast<float>(t));
    return inputs;
  };
  EXPECT_EQ(read((*a)->train(), {7}), read((*b)->train(), {7}));
  EXPECT_NE(read((*a)->train(), {7}), read((*a)->train(), {8}));
  EXPECT_NE(read((*a)->train(), {7}), read((*a)->test(), {7}));
  EXPECT_NE(read((*a)->train(), {7}), read((*c)->train(), {7}));
  const auto pair = read((*a)->train(), {8, 7});
  EXPECT_EQ(std::vector<float>(pair.begin() + 6, pair.begin() + 12), [&] {
    auto one = read((*a)->train(), {7});
    one.pop_back();
    return one;
  }());
}

TEST(Random, HasTheRightMomentsAndRanges) {
  RZ_ASSIGN(
      const auto data,
      OpenDataset(
          {.type = "random", .random_input = {1000}, .random_classes = 4, .random_samples = 100}));
  double sum = 0, squares = 0;
  std::vector<int> counts(4);
  for (int64_t i = 0; i < 100; ++i) {
    std::vector<float> inputs(1000);
    int64_t target;
    data->train().Read(std::vector<int64_t>{i}, inputs.data(), nullptr, &target);
    for (float x : inputs) sum += x, squares += double{x} * x;
    ++counts.at(target);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
  for (int count : counts) EXPECT_GT(count, 5);
}

TEST(Random, TokensAreFollowedByTheirTargets) {
  RZ_ASSIGN(const auto data, OpenDataset({.type = "random",
                                          .sequence = 50,
                                          .vocabulary = 7,
                                          .random_kind = SampleShape::Kind::kTokens,
                                          .random_samples = 20}));
  EXPECT_EQ(data->shape().classes, 7);
  std::vector<int64_t> inputs(50), targets(50);
  data->train().Read(std::vector<int64_t>{3}, nullptr, inputs.data(), targets.data());
  EXPECT_EQ(std::vector<int64_t>(inputs.begin() + 1, inputs.end()),
            std::vector<int64_t>(targets.begin(), targets.end() - 1));
  EXPECT_THAT(inputs, Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(7))));
}

TEST(OpenDataset, ErrorsNameTheKey) {
  EXPECT_THAT(OpenDataset({.type = "parquet"}),
              Says(AllOf(HasSubstr("data.type is \"parquet\""), HasSubstr("\"idx\""))));
  EXPECT_THAT(OpenDataset({.type = "idx"}), Says("data.path is missing"));
  EXPECT_THAT(OpenDataset({.type = "random"}), Says("data.samples is 0"));
  EXPECT_THAT(OpenDataset({.type = "random", .random_samples = 1}), Says("data.input is empty"));
  EXPECT_THAT(OpenDataset({.type = "random", .random_input = {3, -1}, .random_samples = 1}),
              Says("data.input is -1"));
}

}  // namespace
}  // namespace ringzero
