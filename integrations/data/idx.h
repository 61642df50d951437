// IDX: the files of MNIST and Fashion-MNIST, plain or gzip.
//
// A folder holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each with or without ".gz" (a plain one is taken where both lie).
// Debian's package dataset-fashion-mnist has them in /usr/share/datasets/fashion-mnist.
#ifndef RINGZERO_INTEGRATIONS_DATA_IDX_H_
#define RINGZERO_INTEGRATIONS_DATA_IDX_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"

namespace ringzero {

// InvalidArgument or NotFound, naming the file: missing, wrong magic, counts or sizes that do not
// agree, too short, too long, damaged gzip.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const std::string& folder);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_IDX_H_
