// Images of 8-bit pixels in memory, normalised as they are read.
//
// A pixel x of channel c becomes (x/255 - mean_c) / deviation_c with the mean and standard
// deviation of the training set, which are computed from integer sums: equal on every machine.
#ifndef RINGZERO_INTEGRATIONS_DATA_IMAGES_H_
#define RINGZERO_INTEGRATIONS_DATA_IMAGES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"

namespace ringzero {

struct ImageSet {
  std::string path;  // the file, for messages
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;   // image after image, each {channels, height, width}
  std::vector<uint8_t> classes;  // one per image
};

// value[c][x]: what the pixel x of channel c becomes.
using PixelTables = std::vector<std::array<float, 256>>;

// InvalidArgument if all pixels of a channel are equal.
absl::StatusOr<PixelTables> MakePixelTables(const ImageSet& train, int64_t channels);

struct ImageFormat {
  int64_t channels = 1;
  int classes = 0;  // 0: as many as the training set has
};

// InvalidArgument names the file: no training image, different sizes of train and test images, a
// class of the test set that the training set has not, pixels that do not vary. `test` may be
// empty.
absl::StatusOr<std::unique_ptr<Dataset>> MakeImageDataset(ImageSet train, ImageSet test,
                                                          const ImageFormat& format);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_IMAGES_H_
