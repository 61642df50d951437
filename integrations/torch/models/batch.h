// One micro-batch's samples as tensors, read by Batches (configured_run.h).
#ifndef RINGZERO_INTEGRATIONS_TORCH_MODELS_BATCH_H_
#define RINGZERO_INTEGRATIONS_TORCH_MODELS_BATCH_H_

#include <cstdint>

#include "integrations/torch/torch.h"

namespace ringzero {

struct Batch {
  at::Tensor inputs;   // fp32 {n, …} or int64 {n, sequence}
  at::Tensor targets;  // int64 {n} or {n, sequence}
  int64_t counted =
      0;  // 0: a stand-in for a worker without samples left; its results weigh nothing
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MODELS_BATCH_H_
