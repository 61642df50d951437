// Normalises images and hands them out.
#include "integrations/data/images.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {
namespace {

class ImageSplit final : public Split {
 public:
  ImageSplit(ImageSet set, const PixelTables& tables) : set_(std::move(set)), tables_(tables) {}

  int64_t size() const override { return static_cast<int64_t>(set_.classes.size()); }

  void Read(std::span<const int64_t> indices, float* float_inputs, int64_t* /*token_inputs*/,
            int64_t* targets) const override {
    const int64_t area = set_.height * set_.width;
    for (const int64_t index : indices) {
      RZ_CHECK(index >= 0 && index < size(), absl::StrCat("sample ", index, " of ", size()));
      const uint8_t* pixel =
          set_.pixels.data() + index * area * static_cast<int64_t>(tables_.size());
      for (const auto& table : tables_) {
        for (int64_t i = 0; i < area; ++i) *float_inputs++ = table[*pixel++];
      }
      *targets++ = set_.classes[index];
    }
  }

 private:
  ImageSet set_;
  const PixelTables& tables_;  // the dataset's
};

class ImageDataset final : public Dataset {
 public:
  ImageDataset(SampleShape shape, PixelTables tables, ImageSet train, ImageSet test)
      : shape_(std::move(shape)),
        tables_(std::move(tables)),
        train_(std::move(train), tables_),
        test_(std::move(test), tables_) {}
  const SampleShape& shape() const override { return shape_; }
  const Split& train() const override { return train_; }
  const Split& test() const override { return test_; }

 private:
  SampleShape shape_;
  PixelTables tables_;
  ImageSplit train_;
  ImageSplit test_;
};

}  // namespace

absl::StatusOr<PixelTables> MakePixelTables(const ImageSet& train, int64_t channels) {
  const int64_t area = train.height * train.width;
  std::vector<std::array<uint64_t, 256>> counts(channels);
  for (auto& histogram : counts) histogram.fill(0);
  for (size_t i = 0; i < train.pixels.size();) {
    for (auto& histogram : counts) {
      for (int64_t k = 0; k < area; ++k) ++histogram[train.pixels[i++]];
    }
  }
  PixelTables tables(channels);
  for (int64_t c = 0; c < channels; ++c) {
    unsigned __int128 count = 0, sum = 0, squares = 0;
    for (uint64_t x = 0; x < 256; ++x) {
      count += counts[c][x];
      sum += counts[c][x] * x;
      squares += counts[c][x] * x * x;
    }
    const unsigned __int128 spread = count * squares - sum * sum;  // count² times the variance
    if (spread == 0) {
      return absl::InvalidArgumentError(absl::StrCat(train.path, ": all pixels of channel ", c,
                                                     " are equal, so they cannot be normalised"));
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double deviation = std::sqrt(static_cast<double>(spread)) / static_cast<double>(count);
    // (x/255 - mean/255) / (deviation/255): the 255s cancel.
    for (int x = 0; x < 256; ++x) tables[c][x] = static_cast<float>((x - mean) / deviation);
  }
  return tables;
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(ImageSet train, ImageSet test,
                                                          const ImageFormat& format) {
  if (train.classes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(train.path, ": holds no images"));
  }
  if (!test.classes.empty() && (test.height != train.height || test.width != train.width)) {
    return absl::InvalidArgumentError(absl::StrCat(test.path, ": images of ", test.height, "x",
                                                   test.width, " pixels; those of ", train.path,
                                                   " have ", train.height, "x", train.width));
  }
  const int found = 1 + *std::max_element(train.classes.begin(), train.classes.end());
  const int classes = format.classes > 0 ? format.classes : found;
  for (size_t i = 0; i < test.classes.size(); ++i) {
    if (test.classes[i] < classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(test.path, ": image ", i, " is of class ", test.classes[i],
                     ", but the training set has only ", classes, " classes"));
  }
  RZ_ASSIGN_OR_RETURN(PixelTables tables, MakePixelTables(train, format.channels));
  SampleShape shape = {.kind = SampleShape::Kind::kImage,
                       .input = {format.channels, train.height, train.width},
                       .classes = classes};
  return std::make_unique<ImageDataset>(std::move(shape), std::move(tables), std::move(train),
                                        std::move(test));
}

}  // namespace ringzero
