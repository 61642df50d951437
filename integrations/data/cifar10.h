// CIFAR-10, binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, plain or gzip.
//
// A record is one class (0 to 9) and 3072 pixels {3, 32, 32}. The archive cifar-10-binary.tar.gz of
// https://www.cs.toronto.edu/~kriz/cifar.html unpacks to a folder with these files.
#ifndef RINGZERO_INTEGRATIONS_DATA_CIFAR10_H_
#define RINGZERO_INTEGRATIONS_DATA_CIFAR10_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"

namespace ringzero {

// InvalidArgument or NotFound, naming the file: missing, empty, not a whole number of records, a
// class above 9, damaged gzip.
absl::StatusOr<std::unique_ptr<Dataset>> OpenCifar10(const std::string& folder);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_CIFAR10_H_
