// Which micro-batch and layer this thread is computing: what random numbers are keyed by.
//
//   MicroBatchScope scope({.seed = 1, .iteration = 7, .micro_batch = 2});
//   …  // a Dropout layer asks CurrentContext() for the key of its next mask
#ifndef RINGZERO_INTEGRATIONS_TORCH_MICRO_BATCH_CONTEXT_H_
#define RINGZERO_INTEGRATIONS_TORCH_MICRO_BATCH_CONTEXT_H_

#include <cstdint>

namespace ringzero {

struct MicroBatchContext {
  uint64_t seed = 0;
  int64_t iteration = 0;
  int64_t micro_batch = 0;  // its number within the iteration
  int64_t layer = 0;        // the layer's index in the model, set by whoever runs the layers
  int64_t call = 0;         // draws so far in this layer and micro-batch
};

// The computing thread's context, or nullptr outside of any scope. Thread-local.
MicroBatchContext* CurrentContext();

class MicroBatchScope {
 public:
  explicit MicroBatchScope(MicroBatchContext context);
  ~MicroBatchScope();
  MicroBatchScope(const MicroBatchScope&) = delete;
  MicroBatchScope& operator=(const MicroBatchScope&) = delete;

 private:
  MicroBatchContext context_;
  MicroBatchContext* outer_;
};

// Sets the layer of the current context (if any) and starts its call counter again.
void EnterLayer(int64_t layer);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MICRO_BATCH_CONTEXT_H_
