// Readers of images and of text, random samples, the choice of a reader by type, and the order of
// epochs: right values, and one clear error for everything that can be wrong with a file.
#include "integrations/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/data/files.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace ringzero::testing;  // NOLINT(google-build-using-namespace): the tests' own helpers

// 5 training and 2 test images of 2x3 pixels; `Write` puts them into the folder.
struct SmallIdx {
  Bytes train_pixels = {0,   255, 10, 20, 30, 40, 1, 2, 3, 4,  5,  6,  100, 110, 120,
                        130, 140, 15, 7,  77, 27, 9, 9, 9, 80, 81, 82, 83,  84,  85};
  Bytes train_labels = {0, 1, 2, 1, 0};
  Bytes train_images_header = BigEndianWords({0x803, 5, 2, 3}, {});
  Bytes train_labels_header = BigEndianWords({0x801, 5}, {});
  Bytes test_images = BigEndianWords({0x803, 2, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
  Bytes test_labels = BigEndianWords({0x801, 2}, {2, 0});

  void Write(const TemporaryFolder& folder) const {
    WriteFile(folder / "train-images-idx3-ubyte", train_images_header + train_pixels);
    WriteFile(folder / "train-labels-idx1-ubyte.gz", Gzip(train_labels_header + train_labels));
    WriteFile(folder / "t10k-images-idx3-ubyte.gz", Gzip(test_images));
    WriteFile(folder / "t10k-labels-idx1-ubyte", test_labels);
  }
};

TEST(Idx, ReadsPlainAndPackedFiles) {
  TemporaryFolder folder;
  const SmallIdx small;
  small.Write(folder);
  RZ_ASSIGN(const auto dataset, OpenIdx(folder.path()));
  EXPECT_EQ(dataset->shape.kind, SampleShape::Kind::kImage);
  EXPECT_THAT(dataset->shape.input, ElementsAre(1, 2, 3));
  EXPECT_EQ(dataset->shape.classes, 3);
  EXPECT_EQ(dataset->train.size(), 5);
  EXPECT_EQ(dataset->test.size(), 2);

  double sum = 0, squares = 0;
  for (uint8_t x : small.train_pixels) {
    sum += x / 255.0;
    squares += x / 255.0 * (x / 255.0);
  }
  const double count = static_cast<double>(small.train_pixels.size());
  const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
  std::vector<float> inputs(12);
  std::vector<int64_t> targets(2);
  dataset->train.Read(std::vector<int64_t>{3, 1}, {inputs.data(), nullptr, targets.data()});
  EXPECT_THAT(targets, ElementsAre(1, 1));
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(inputs[i], (small.train_pixels[18 + i] / 255.0 - mean) / deviation, 1e-6);
    EXPECT_NEAR(inputs[6 + i], (small.train_pixels[6 + i] / 255.0 - mean) / deviation, 1e-6);
  }
  dataset->test.Read(std::vector<int64_t>{0}, {inputs.data(), nullptr, targets.data()});
  EXPECT_EQ(targets[0], 2);
  EXPECT_NEAR(inputs[0], (1 / 255.0 - mean) / deviation, 1e-6);  // by the training set's numbers
}

TEST(Idx, MissingFilesAreNamed) {
  TemporaryFolder folder;
  const auto dataset = OpenIdx(folder.path());
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(dataset, Says(AllOf(HasSubstr(folder / "train-images-idx3-ubyte"),
                                  HasSubstr("dataset-fashion-mnist"))));
}

struct BadIdx {
  const char* name;
  void (*spoil)(SmallIdx&);
  std::vector<std::string> words;  // of the message
};

class IdxErrors : public ::testing::TestWithParam<BadIdx> {};

TEST_P(IdxErrors, AreClear) {
  TemporaryFolder folder;
  SmallIdx small;
  GetParam().spoil(small);
  small.Write(folder);
  const auto dataset = OpenIdx(folder.path());
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(dataset, Says(folder.path()));
  for (const std::string& word : GetParam().words) EXPECT_THAT(dataset, Says(word));
}

INSTANTIATE_TEST_SUITE_P(
    All, IdxErrors,
    ::testing::Values(
        BadIdx{"ImagesMagic",
               [](SmallIdx& s) { s.train_images_header[3] = 1; },
               {"train-images-idx3-ubyte", "0x00000801 instead of 0x00000803"}},
        BadIdx{"LabelsMagic",
               [](SmallIdx& s) { s.train_labels_header[2] = 9; },
               {"train-labels-idx1-ubyte.gz", "0x00000901 instead of 0x00000801"}},
        BadIdx{"MoreLabels",
               [](SmallIdx& s) {
                 s.train_labels_header = BigEndianWords({0x801, 6}, {0});
               },
               {"labels-idx1-ubyte.gz", "6 labels", "5 images"}},
        BadIdx{"TooFewPixels",
               [](SmallIdx& s) { s.train_pixels.pop_back(); },
               {"train-images", "truncated", "wanted 30 bytes, found 29"}},
        BadIdx{"TooManyPixels",
               [](SmallIdx& s) { s.train_pixels.push_back(0); },
               {"train-images", "bytes follow the 5 images"}},
        BadIdx{"TooManyLabels",
               [](SmallIdx& s) { s.train_labels.push_back(0); },
               {"train-labels", "bytes follow the 5 labels"}},
        BadIdx{"NoRows",
               [](SmallIdx& s) {
                 s.train_images_header = BigEndianWords({0x803, 5, 0, 3}, {});
               },
               {"images of 0x3 pixels"}},
        BadIdx{"HugeClaim",
               [](SmallIdx& s) {
                 s.train_images_header = BigEndianWords({0x803, ~0u, 1 << 14, 1 << 14}, {});
               },
               {"truncated", "found 30"}},
        BadIdx{"NoImages",
               [](SmallIdx& s) {
                 s.train_images_header = BigEndianWords({0x803, 0, 2, 3}, {});
                 s.train_labels_header = BigEndianWords({0x801, 0}, {});
                 s.train_pixels.clear();
                 s.train_labels.clear();
               },
               {"holds no images"}},
        BadIdx{"OtherSize",
               [](SmallIdx& s) {
                 s.test_images = BigEndianWords({0x803, 2, 1, 1}, {1, 2});
               },
               {"t10k-images", "1x1", "2x3"}},
        BadIdx{"UnknownClass",
               [](SmallIdx& s) { s.test_labels.back() = 3; },
               {"t10k", "image 1 is of class 3", "3 classes"}},
        BadIdx{"Constant",
               [](SmallIdx& s) { s.train_pixels.assign(30, 7); },
               {"train-images", "are equal"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Idx, EveryTruncationIsAnError) {
  TemporaryFolder folder;
  for (const auto& [name, words] : {std::pair("train-labels-idx1-ubyte.gz", ""),
                                    std::pair("train-images-idx3-ubyte", "truncated")}) {
    SmallIdx().Write(folder);
    const std::string path = folder / name;
    for (const Bytes& shorter : Truncated(ReadFile(path))) {
      WriteFile(path, shorter);
      ASSERT_THAT(OpenIdx(folder.path()), Says(AllOf(HasSubstr(path), HasSubstr(words))))
          << shorter.size() << " bytes";
    }
  }
}

// Some changes (a name, a time in the gzip header) are harmless: no crash is what is asked.
TEST(Idx, ChangedBitsNeverCrash) {
  TemporaryFolder folder;
  SmallIdx().Write(folder);
  const std::string path = folder / "train-labels-idx1-ubyte.gz";
  const std::vector<Bytes> changed = WithABitChanged(ReadFile(path));
  const auto refused = std::ranges::count_if(changed, [&](const Bytes& file) {
    WriteFile(path, file);
    return !OpenIdx(folder.path()).ok();
  });
  EXPECT_GT(refused, static_cast<int>(changed.size() / 2));
}

TEST(Idx, GzipDataHaveMembersAndWhatFollowsThemIsNotRead) {
  TemporaryFolder folder;
  const SmallIdx small;
  small.Write(folder);
  const std::string path = folder / "train-labels-idx1-ubyte.gz";
  WriteFile(path, Gzip(small.train_labels_header) + Gzip(small.train_labels));
  EXPECT_TRUE(OpenIdx(folder.path()).ok());
  WriteFile(path, Gzip(small.train_labels_header + small.train_labels) + Bytes{1, 2, 3});
  EXPECT_TRUE(OpenIdx(folder.path()).ok());
}

// The real thing, where its Debian package is installed.
TEST(Idx, FashionMnist) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  RZ_ASSIGN(const auto dataset, OpenIdx(folder));
  EXPECT_THAT(dataset->shape.input, ElementsAre(1, 28, 28));
  EXPECT_EQ(dataset->shape.classes, 10);
  EXPECT_EQ(dataset->train.size(), 60000);
  EXPECT_EQ(dataset->test.size(), 10000);
  std::vector<float> inputs(784);
  std::vector<int64_t> targets(1);
  dataset->train.Read(std::vector<int64_t>{0}, {inputs.data(), nullptr, targets.data()});
  EXPECT_EQ(targets[0], 9);                        // the first one is a boot
  EXPECT_NEAR(inputs[0], -0.2860 / 0.3530, 1e-3);  // black; the known mean and deviation
}

TEST(Cifar10, ReadsRecords) {
  TemporaryFolder folder;
  for (int batch = 1; batch <= 6; ++batch) {
    Bytes record(3073);
    record[0] = static_cast<uint8_t>(batch);
    for (size_t i = 1; i < record.size(); ++i) record[i] = static_cast<uint8_t>(i * batch);
    const std::string name =
        batch <= 5 ? "data_batch_" + std::to_string(batch) + ".bin" : "test_batch.bin";
    if (batch == 6) record[0] = 3;
    WriteFile(folder / name, record + record);
  }
  RZ_ASSIGN(auto dataset, OpenCifar10(folder.path()));
  EXPECT_EQ(dataset->train.size(), 10);
  EXPECT_EQ(dataset->test.size(), 2);
  EXPECT_THAT(dataset->shape.input, ElementsAre(3, 32, 32));
  EXPECT_EQ(dataset->shape.classes, 10);  // of the format, though only five occur
  std::vector<float> inputs(2 * 3072);
  std::vector<int64_t> targets(2);
  dataset->train.Read(std::vector<int64_t>{4, 9}, {inputs.data(), nullptr, targets.data()});
  EXPECT_THAT(targets, ElementsAre(3, 5));

  WriteFile(folder / "data_batch_3.bin", Bytes(3072));
  EXPECT_THAT(OpenCifar10(folder.path()),
              Says(AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("3072 bytes"))));
  WriteFile(folder / "data_batch_3.bin", {});
  EXPECT_THAT(OpenCifar10(folder.path()),
              Says(AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("0 bytes"))));
  WriteFile(folder / "data_batch_3.bin", Bytes(3073, 3) + Bytes(3073, 10));
  EXPECT_THAT(OpenCifar10(folder.path()),
              Says(AllOf(HasSubstr("record 1"), HasSubstr("class 10"))));
  std::filesystem::remove(folder / "data_batch_3.bin");
  EXPECT_THAT(OpenCifar10(folder.path()), Says("data_batch_3.bin"));
}

TEST(Text, CutsSamplesWithTheNextByteAsTarget) {
  TemporaryFolder folder;
  const Bytes text = ToBytes("abcdefghijklmnopqrstuvwxyz0123");  // 30 bytes: 27 and 3
  WriteFile(folder / "plain", text);
  WriteFile(folder / "packed", Gzip(text));
  for (const char* name : {"plain", "packed"}) {
    RZ_ASSIGN(const auto dataset, OpenText(folder / name, 2));
    EXPECT_EQ(dataset->shape.kind, SampleShape::Kind::kTokens);
    EXPECT_THAT(dataset->shape.input, ElementsAre(2));
    EXPECT_EQ(dataset->shape.classes, 256);
    EXPECT_EQ(dataset->train.size(), 13);
    EXPECT_EQ(dataset->test.size(), 1);
    std::vector<int64_t> inputs(4), targets(4);
    dataset->train.Read(std::vector<int64_t>{12, 0}, {nullptr, inputs.data(), targets.data()});
    EXPECT_THAT(inputs, ElementsAre('y', 'z', 'a', 'b'));
    EXPECT_THAT(targets, ElementsAre('z', '0', 'b', 'c'));
    dataset->test.Read(std::vector<int64_t>{0}, {nullptr, inputs.data(), targets.data()});
    EXPECT_THAT(targets, ElementsAre('2', '3', 'b', 'c'));
  }
}

TEST(Text, ErrorsNameTheFileOrTheKey) {
  TemporaryFolder folder;
  WriteFile(folder / "short", ToBytes("abcdefghijklmnopqrst"));
  EXPECT_THAT(
      OpenText(folder / "short", 2),
      Says(AllOf(HasSubstr(folder / "short"), HasSubstr("20 bytes"), HasSubstr("model.seq"))));
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
  RZ_ASSIGN(const auto text, DecodeBibleData(file, "path"));
  EXPECT_EQ(std::string(text.begin(), text.end()), "In the begin");
  const TemporaryFolder folder;
  WriteFile(folder / "bible", file);
  EXPECT_THAT(OpenText(folder / "bible", 2), Says("12 bytes"));
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
  EXPECT_EQ(dataset->train.size(), (4404475 - 440447 - 1) / 128);
}

TEST(EpochOrder, IsAPermutationKeyedBySeedAndEpoch) {
  for (int64_t size : {0, 1, 2, 3, 10, 1000}) {
    std::vector<int64_t> sorted = EpochOrder(1, 2, size);
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> all(size);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
  }
  const auto order = EpochOrder(1, 2, 1000);
  EXPECT_EQ(order, EpochOrder(1, 2, 1000));
  EXPECT_NE(order, EpochOrder(1, 3, 1000));
  EXPECT_NE(order, EpochOrder(2, 2, 1000));
}

// A change here would change every run that was ever recorded.
TEST(EpochOrder, KnownAnswer) {
  EXPECT_THAT(EpochOrder(0, 0, 8), ElementsAre(4, 6, 1, 2, 3, 0, 5, 7));
  EXPECT_THAT(EpochOrder(7, 3, 8), ElementsAre(3, 4, 6, 0, 1, 7, 2, 5));
}

TEST(EpochOrder, EveryPlaceIsAboutEquallyLikely) {
  constexpr int kSize = 5, kEpochs = 20000;
  int counts[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = EpochOrder(11, epoch, kSize);
    for (int place = 0; place < kSize; ++place) ++counts[place][order[place]];
  }
  const double wanted = 1.0 * kEpochs / kSize;
  for (const auto& row : counts) {
    for (int count : row) EXPECT_NEAR(count, wanted, 5 * std::sqrt(wanted));
  }
}

TEST(Random, IsAFunctionOfSeedAndIndex) {
  const DataConfig options = {.type = "random", .samples = 100, .input = {2, 3}, .classes = 4};
  const auto a = OpenDataset(options, {}, 5), b = OpenDataset(options, {}, 5);
  const auto c = OpenDataset(options, {}, 6);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ((*a)->train.size(), 100);
  EXPECT_EQ((*a)->test.size(), 10);
  const auto read = [](const Split& split, std::vector<int64_t> indices) {
    std::vector<float> inputs(6 * indices.size());
    std::vector<int64_t> targets(indices.size());
    split.Read(indices, {inputs.data(), nullptr, targets.data()});
    for (int64_t t : targets) inputs.push_back(static_cast<float>(t));
    return inputs;
  };
  EXPECT_EQ(read((*a)->train, {7}), read((*b)->train, {7}));
  EXPECT_NE(read((*a)->train, {7}), read((*a)->train, {8}));
  EXPECT_NE(read((*a)->train, {7}), read((*a)->test, {7}));
  EXPECT_NE(read((*a)->train, {7}), read((*c)->train, {7}));
  const auto pair = read((*a)->train, {8, 7});
  EXPECT_EQ(std::vector<float>(pair.begin() + 6, pair.begin() + 12), [&] {
    auto one = read((*a)->train, {7});
    one.pop_back();
    return one;
  }());
}

TEST(Random, HasTheRightMomentsAndRanges) {
  RZ_ASSIGN(const auto data,
            OpenDataset({.type = "random", .samples = 100, .input = {1000}, .classes = 4}, {}, 0));
  double sum = 0, squares = 0;
  std::vector<int> counts(4);
  for (int64_t i = 0; i < 100; ++i) {
    std::vector<float> inputs(1000);
    int64_t target;
    data->train.Read(std::vector<int64_t>{i}, {inputs.data(), nullptr, &target});
    for (float x : inputs) sum += x, squares += double{x} * x;
    ++counts.at(target);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
  for (int count : counts) EXPECT_GT(count, 5);
}

TEST(Random, TokensAreFollowedByTheirTargets) {
  RZ_ASSIGN(const auto data,
            OpenDataset({.type = "random", .samples = 20},
                        {.type = ModelConfig::Type::kGpt, .gpt = {.vocab = 7, .seq = 50}}, 0));
  EXPECT_EQ(data->shape.classes, 7);
  std::vector<int64_t> inputs(50), targets(50);
  data->train.Read(std::vector<int64_t>{3}, {nullptr, inputs.data(), targets.data()});
  EXPECT_EQ(std::vector<int64_t>(inputs.begin() + 1, inputs.end()),
            std::vector<int64_t>(targets.begin(), targets.end() - 1));
  EXPECT_THAT(inputs, Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(7))));
}

}  // namespace
}  // namespace ringzero
