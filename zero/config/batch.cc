// The batch triple's cases, one after the other.
#include "zero/config/batch.h"

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

// train / (divisor × workers), exactly.
absl::StatusOr<int64_t> Divide(int64_t train, int64_t divisor, const char* name, int64_t workers) {
  const int64_t parts = divisor * workers;
  if (train % parts != 0) {
    const std::string by =
        name == nullptr ? absl::StrCat(workers, " workers")
                        : absl::StrCat(name, " ", divisor, " x ", workers, " workers = ", parts);
    return absl::InvalidArgumentError(
        absl::StrCat(kTrainBatchKey, " ", train, " is not divisible by ", by));
  }
  return train / parts;
}

// micro-batch × K × N.
absl::StatusOr<int64_t> Multiply(const BatchTriple& batch, int64_t workers) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (batch.micro_batch > kLimit / workers / batch.laps) {
    return absl::InvalidArgumentError(absl::StrCat(kMicroBatchKey, " ", batch.micro_batch, " x ",
                                                   kLapsKey, " ", batch.laps, " x ", workers,
                                                   " workers is more than ", kLimit, " samples"));
  }
  return batch.micro_batch * batch.laps * workers;
}

}  // namespace

absl::StatusOr<BatchTriple> CompleteBatch(BatchTriple given, int64_t workers) {
  BatchTriple batch = given;
  if (batch.train_batch == 0 && batch.micro_batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("give ", kTrainBatchKey, " or ", kMicroBatchKey, ": no batch size is there"));
  }
  if (batch.train_batch != 0 && batch.micro_batch != 0 && batch.laps != 0) {
    RZ_ASSIGN_OR_RETURN(const int64_t product, Multiply(batch, workers));
    if (batch.train_batch != product) {
      return absl::InvalidArgumentError(
          absl::StrCat(kTrainBatchKey, " ", batch.train_batch, " is not ", kMicroBatchKey, " ",
                       batch.micro_batch, " x ", kLapsKey, " ", batch.laps, " x ", workers,
                       " workers = ", product));
    }
    return batch;
  }
  if (batch.train_batch == 0) {
    if (batch.laps == 0) batch.laps = 1;
    RZ_ASSIGN_OR_RETURN(batch.train_batch, Multiply(batch, workers));
  } else if (batch.micro_batch != 0) {
    RZ_ASSIGN_OR_RETURN(batch.laps,
                        Divide(batch.train_batch, batch.micro_batch, kMicroBatchKey, workers));
  } else {
    const char* name = batch.laps == 0 ? nullptr : kLapsKey;
    if (batch.laps == 0) batch.laps = 1;
    RZ_ASSIGN_OR_RETURN(batch.micro_batch, Divide(batch.train_batch, batch.laps, name, workers));
  }
  return batch;
}

}  // namespace ringzero
