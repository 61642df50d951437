// Reads IDX files; every field is checked before it is believed.
#include "integrations/data/idx.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/data/byte_source.h"
#include "integrations/data/images.h"

namespace ringzero {
namespace {

constexpr uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint32_t kMostPixels = 1 << 14;      // per side

absl::StatusOr<std::string> FindFile(const std::string& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = absl::StrCat(folder, "/", name, ending);
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return absl::NotFoundError(
      absl::StrCat(folder, "/", name, ": neither it nor ", name,
                   ".gz exists (Debian's package dataset-fashion-mnist puts them into "
                   "/usr/share/datasets/fashion-mnist)"));
}

absl::StatusOr<uint32_t> ReadWord(ByteSource& source, const std::string& what) {
  std::array<uint8_t, 4> b;
  RZ_RETURN_IF_ERROR(source.ReadExactly(std::span<uint8_t>(b), what));
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

absl::Status CheckMagic(ByteSource& source, uint32_t wanted, const std::string& kind) {
  RZ_ASSIGN_OR_RETURN(const uint32_t magic, ReadWord(source, "the magic number"));
  if (magic == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: not an IDX file of %s: its magic number is 0x%08x instead of 0x%08x",
                      source.path(), kind, magic, wanted));
}

absl::Status ReadImages(const std::string& path, ImageSet& set) {
  RZ_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path));
  RZ_RETURN_IF_ERROR(CheckMagic(source, kImagesMagic, "images"));
  RZ_ASSIGN_OR_RETURN(const uint32_t count, ReadWord(source, "the number of images"));
  RZ_ASSIGN_OR_RETURN(const uint32_t height, ReadWord(source, "the number of rows"));
  RZ_ASSIGN_OR_RETURN(const uint32_t width, ReadWord(source, "the number of columns"));
  if (height < 1 || height > kMostPixels || width < 1 || width > kMostPixels) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": images of ", height, "x", width,
                                                   " pixels: wanted 1 to ", kMostPixels,
                                                   " per side"));
  }
  const std::string what = absl::StrCat(count, " images of ", height, "x", width, " pixels");
  RZ_RETURN_IF_ERROR(source.ReadExactly(uint64_t{count} * height * width, what, set.pixels));
  set.path = path;
  set.height = height;
  set.width = width;
  return source.ExpectEnd(absl::StrCat("the ", what));
}

absl::Status ReadLabels(const std::string& path, ImageSet& set) {
  RZ_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path));
  RZ_RETURN_IF_ERROR(CheckMagic(source, kLabelsMagic, "labels"));
  RZ_ASSIGN_OR_RETURN(const uint32_t count, ReadWord(source, "the number of labels"));
  const uint64_t images = set.pixels.size() / (set.height * set.width);
  if (count != images) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", count, " labels, but ", set.path, " has ", images, " images"));
  }
  const std::string what = absl::StrCat(count, " labels");
  RZ_RETURN_IF_ERROR(source.ReadExactly(uint64_t{count}, what, set.classes));
  return source.ExpectEnd(absl::StrCat("the ", what));
}

absl::StatusOr<ImageSet> ReadSet(const std::string& folder, const std::string& prefix) {
  RZ_ASSIGN_OR_RETURN(const std::string images, FindFile(folder, prefix + "-images-idx3-ubyte"));
  RZ_ASSIGN_OR_RETURN(const std::string labels, FindFile(folder, prefix + "-labels-idx1-ubyte"));
  ImageSet set;
  RZ_RETURN_IF_ERROR(ReadImages(images, set));
  RZ_RETURN_IF_ERROR(ReadLabels(labels, set));
  return set;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const std::string& folder) {
  RZ_ASSIGN_OR_RETURN(ImageSet train, ReadSet(folder, "train"));
  RZ_ASSIGN_OR_RETURN(ImageSet test, ReadSet(folder, "t10k"));
  return MakeImageDataset(std::move(train), std::move(test), {.channels = 1});
}

}  // namespace ringzero
