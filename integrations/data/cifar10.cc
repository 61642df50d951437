// Reads the records of CIFAR-10.
#include "integrations/data/cifar10.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/data/byte_source.h"
#include "integrations/data/images.h"

namespace ringzero {
namespace {

constexpr int64_t kSide = 32, kChannels = 3;
constexpr int kClasses = 10;
constexpr size_t kRecord = 1 + kChannels * kSide * kSide;

absl::Status AppendBatch(const std::string& folder, const std::string& name, ImageSet& set) {
  std::string path = absl::StrCat(folder, "/", name);
  if (access(path.c_str(), F_OK) != 0) {
    if (access((path + ".gz").c_str(), F_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat(path, ": neither it nor ", name,
                       ".gz exists (the archive cifar-10-binary.tar.gz unpacks to a folder "
                       "cifar-10-batches-bin that holds it)"));
    }
    path += ".gz";
  }
  RZ_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadAllBytes(path));
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes.size(),
                                                   " bytes: wanted a multiple of ", kRecord,
                                                   " (a class and 32x32 pixels of 3 colours)"));
  }
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] >= kClasses) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": record ", at / kRecord, " is of class ", bytes[at], ": wanted 0 to 9"));
    }
    set.classes.push_back(bytes[at]);
    set.pixels.insert(set.pixels.end(), bytes.begin() + at + 1, bytes.begin() + at + kRecord);
  }
  set.path = path;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const std::string& folder) {
  ImageSet train = {.height = kSide, .width = kSide};
  for (int batch = 1; batch <= 5; ++batch) {
    RZ_RETURN_IF_ERROR(AppendBatch(folder, absl::StrCat("data_batch_", batch, ".bin"), train));
  }
  ImageSet test = {.height = kSide, .width = kSide};
  RZ_RETURN_IF_ERROR(AppendBatch(folder, "test_batch.bin", test));
  return MakeImageDataset(std::move(train), std::move(test),
                          {.channels = kChannels, .classes = kClasses});
}

}  // namespace ringzero
