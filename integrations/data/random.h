// Random samples, for tests and for measuring: sample i is a function of (seed, split, i).
//
// Image inputs are uniform with mean 0 and variance 1, classes and tokens uniform; there is nothing
// to learn from them. The test split has a tenth as many samples.
#ifndef RINGZERO_INTEGRATIONS_DATA_RANDOM_H_
#define RINGZERO_INTEGRATIONS_DATA_RANDOM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"

namespace ringzero {

// InvalidArgument names the key: "data.samples", "data.input", "data.classes", "model.seq",
// "model.vocab".
absl::StatusOr<std::unique_ptr<Dataset>> OpenRandom(const DatasetOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_RANDOM_H_
