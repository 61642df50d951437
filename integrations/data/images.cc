// Reads IDX files and CIFAR-10's records, checks every field, and normalises what they hold.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "integrations/data/dataset.h"

namespace ringzero {
namespace {

struct ImageSet {
  std::string path;  // the file, for messages
  int64_t channels = 1, height = 0, width = 0;
  int known_classes = 0;         // of the format; 0: as many as the training set has
  std::vector<uint8_t> pixels;   // image after image, each {channels, height, width}
  std::vector<uint8_t> classes;  // one per image
};

// tables[c][x]: what the pixel x of channel c becomes.
using PixelTables = std::vector<std::array<float, 256>>;

class ImageSplit final : public Split {
 public:
  ImageSplit(ImageSet set, PixelTables tables) : set_(std::move(set)), tables_(std::move(tables)) {}

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
  const ImageSet set_;
  const PixelTables tables_;
};

absl::StatusOr<PixelTables> MakePixelTables(const ImageSet& train) {
  const int64_t area = train.height * train.width, channels = train.channels;
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
      return InvalidArgument(train.path, ": all pixels of channel ", c,
                             " are equal, so they cannot be normalised");
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double deviation = std::sqrt(static_cast<double>(spread)) / static_cast<double>(count);
    // (x/255 - mean/255) / (deviation/255): the 255s cancel.
    for (int x = 0; x < 256; ++x) tables[c][x] = static_cast<float>((x - mean) / deviation);
  }
  return tables;
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeDataset(ImageSet train, ImageSet test) {
  if (train.classes.empty()) {
    return InvalidArgument(train.path, ": holds no images");
  }
  if (!test.classes.empty() && (test.height != train.height || test.width != train.width)) {
    return InvalidArgument(test.path, ": images of ", test.height, "x", test.width,
                           " pixels; those of ", train.path, " have ", train.height, "x",
                           train.width);
  }
  const int found = 1 + *std::max_element(train.classes.begin(), train.classes.end());
  const int classes = train.known_classes > 0 ? train.known_classes : found;
  for (size_t i = 0; i < test.classes.size(); ++i) {
    if (test.classes[i] < classes) continue;
    return InvalidArgument(test.path, ": image ", i, " is of class ", test.classes[i],
                           ", but the training set has only ", classes, " classes");
  }
  RZ_ASSIGN_OR_RETURN(PixelTables tables, MakePixelTables(train));
  SampleShape shape = {.kind = SampleShape::Kind::kImage,
                       .input = {train.channels, train.height, train.width},
                       .classes = classes};
  auto train_split = std::make_unique<ImageSplit>(std::move(train), tables);
  auto test_split = std::make_unique<ImageSplit>(std::move(test), std::move(tables));
  return std::make_unique<Dataset>(std::move(shape), std::move(train_split), std::move(test_split));
}

// The path folder/name or, if there is no such file, folder/name.gz.
absl::StatusOr<std::string> FindFile(const std::string& folder, const std::string& name,
                                     absl::string_view origin) {
  for (const char* ending : {"", ".gz"}) {
    std::string path = absl::StrCat(folder, "/", name, ending);
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, "/", name, ": neither it nor ", name, ".gz exists (", origin, ")"));
}

constexpr uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint32_t kMostPixels = 1 << 14;      // per side

struct IdxFile {
  std::string path;
  std::vector<uint32_t> sizes;  // of its dimensions
  std::vector<uint8_t> bytes;   // behind the header
};

// The header: big-endian words, the magic number and a word per dimension.
absl::StatusOr<IdxFile> ReadIdx(const std::string& folder, const std::string& name,
                                uint32_t wanted) {
  IdxFile file;
  RZ_ASSIGN_OR_RETURN(file.path, FindFile(folder, name,
                                          "Debian's package dataset-fashion-mnist puts them into "
                                          "/usr/share/datasets/fashion-mnist"));
  RZ_ASSIGN_OR_RETURN(file.bytes, ReadAllBytes(file.path));
  const size_t dimensions = wanted & 0xff, header = 4 * (1 + dimensions);
  if (file.bytes.size() < header) {
    return InvalidArgument(file.path, ": truncated: the header wanted ", header, " bytes, found ",
                           file.bytes.size());
  }
  const auto word = [&](size_t i) {
    const uint8_t* b = file.bytes.data() + 4 * i;
    return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
  };
  if (word(0) != wanted) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not an IDX file of %s: its magic number is 0x%08x instead of 0x%08x",
                        file.path, wanted == kImagesMagic ? "images" : "labels", word(0), wanted));
  }
  for (size_t i = 1; i <= dimensions; ++i) file.sizes.push_back(word(i));
  file.bytes.erase(file.bytes.begin(), file.bytes.begin() + static_cast<ptrdiff_t>(header));
  return file;
}

absl::Status CheckBytes(const IdxFile& file, const std::string& what, uint64_t wanted) {
  const uint64_t found = file.bytes.size();
  if (found == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      found > wanted
          ? absl::StrCat(file.path, ": bytes follow the ", what, ", where the file should end")
          : absl::StrCat(file.path, ": truncated: ", what, " wanted ", wanted, " bytes, found ",
                         found));
}

absl::StatusOr<ImageSet> ReadIdxSet(const std::string& folder, const std::string& prefix) {
  RZ_ASSIGN_OR_RETURN(IdxFile images, ReadIdx(folder, prefix + "-images-idx3-ubyte", kImagesMagic));
  const uint32_t count = images.sizes[0], height = images.sizes[1], width = images.sizes[2];
  const std::string size = absl::StrCat("images of ", height, "x", width, " pixels");
  if (height < 1 || height > kMostPixels || width < 1 || width > kMostPixels) {
    return InvalidArgument(images.path, ": ", size, ": wanted 1 to ", kMostPixels, " per side");
  }
  RZ_RETURN_IF_ERROR(
      CheckBytes(images, absl::StrCat(count, " ", size), uint64_t{count} * height * width));
  RZ_ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(folder, prefix + "-labels-idx1-ubyte", kLabelsMagic));
  if (labels.sizes[0] != count) {
    return InvalidArgument(labels.path, ": ", labels.sizes[0], " labels, but ", images.path,
                           " has ", count, " images");
  }
  RZ_RETURN_IF_ERROR(CheckBytes(labels, absl::StrCat(count, " labels"), count));
  return ImageSet{.path = std::move(images.path),
                  .height = height,
                  .width = width,
                  .pixels = std::move(images.bytes),
                  .classes = std::move(labels.bytes)};
}

constexpr int64_t kSide = 32, kChannels = 3;
constexpr int kClasses = 10;
constexpr size_t kRecord = 1 + kChannels * kSide * kSide;

absl::Status AppendBatch(const std::string& folder, const std::string& name, ImageSet& set) {
  RZ_ASSIGN_OR_RETURN(
      const std::string path,
      FindFile(folder, name,
               "the archive cifar-10-binary.tar.gz unpacks to a folder cifar-10-batches-bin that "
               "holds it"));
  RZ_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    return InvalidArgument(path, ": ", bytes.size(), " bytes: wanted a multiple of ", kRecord,
                           " (a class and 32x32 pixels of 3 colours)");
  }
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= kClasses) {
      return InvalidArgument(path, ": record ", at / kRecord, " is of class ", bytes[at],
                             ": wanted 0 to 9");
    }
    set.classes.push_back(bytes[at]);
    set.pixels.insert(set.pixels.end(), bytes.begin() + at + 1, bytes.begin() + at + kRecord);
  }
  set.path = path;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const std::string& folder) {
  RZ_ASSIGN_OR_RETURN(ImageSet train, ReadIdxSet(folder, "train"));
  RZ_ASSIGN_OR_RETURN(ImageSet test, ReadIdxSet(folder, "t10k"));
  return MakeDataset(std::move(train), std::move(test));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const std::string& folder) {
  ImageSet train = {
      .channels = kChannels, .height = kSide, .width = kSide, .known_classes = kClasses};
  for (int batch = 1; batch <= 5; ++batch) {
    RZ_RETURN_IF_ERROR(AppendBatch(folder, absl::StrCat("data_batch_", batch, ".bin"), train));
  }
  ImageSet test = {.channels = kChannels, .height = kSide, .width = kSide};
  RZ_RETURN_IF_ERROR(AppendBatch(folder, "test_batch.bin", test));
  return MakeDataset(std::move(train), std::move(test));
}

}  // namespace ringzero
