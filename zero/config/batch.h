// The batch triple: micro-batch × K × N = train_batch_size, as DeepSpeed completes and checks it.
//
//   RZ_ASSIGN_OR_RETURN(BatchTriple batch, CompleteBatch({.micro_batch = 32, .laps = 1}, 4));
//   batch.train_batch;   // 128
#ifndef RINGZERO_ZERO_CONFIG_BATCH_H_
#define RINGZERO_ZERO_CONFIG_BATCH_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace ringzero {

inline constexpr char kTrainBatchKey[] = "train_batch_size";
inline constexpr char kMicroBatchKey[] = "train_micro_batch_size_per_gpu";
inline constexpr char kLapsKey[] = "gradient_accumulation_steps";

struct BatchTriple {
  int64_t train_batch = 0;  // samples per update; 0: not given
  int64_t micro_batch = 0;  // samples per worker and lap (train_micro_batch_size_per_gpu)
  int64_t laps = 0;         // K (gradient_accumulation_steps)
};

// What is missing (0) is derived: two of the three give the third; one batch size alone means K
// = 1. InvalidArgument, in words without a place, when they do not divide or do not agree, or make
// more than 2^31 - 1 samples.
absl::StatusOr<BatchTriple> CompleteBatch(BatchTriple given, int64_t workers);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_BATCH_H_
