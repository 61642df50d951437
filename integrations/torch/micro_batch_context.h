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
  int64_t layer = 0;        // the layer's index in the model, set by EnterLayer
  int64_t call = 0;         // draws so far in this layer and micro-batch
};

// The context of this thread.
inline thread_local MicroBatchContext* current_context = nullptr;

// The computing thread's context, or nullptr outside of any scope.
inline MicroBatchContext* CurrentContext() { return current_context; }

class MicroBatchScope {
 public:
  explicit MicroBatchScope(MicroBatchContext context) : context_(context), outer_(current_context) {
    current_context = &context_;
  }
  ~MicroBatchScope() { current_context = outer_; }
  MicroBatchScope(const MicroBatchScope&) = delete;
  MicroBatchScope& operator=(const MicroBatchScope&) = delete;

 private:
  MicroBatchContext context_;
  MicroBatchContext* outer_;
};

// Sets the layer of the current context (if any) and starts its call counter again.
inline void EnterLayer(int64_t layer) {
  if (current_context == nullptr) return;
  current_context->layer = layer;
  current_context->call = 0;
}

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MICRO_BATCH_CONTEXT_H_
