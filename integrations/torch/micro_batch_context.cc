// The computing thread's place in the run.
#include "integrations/torch/micro_batch_context.h"

namespace ringzero {
namespace {
thread_local MicroBatchContext* current_context = nullptr;
}  // namespace

MicroBatchContext* CurrentContext() { return current_context; }

MicroBatchScope::MicroBatchScope(MicroBatchContext context)
    : context_(context), outer_(current_context) {
  current_context = &context_;
}

MicroBatchScope::~MicroBatchScope() { current_context = outer_; }

void EnterLayer(int64_t layer) {
  if (current_context == nullptr) return;
  current_context->layer = layer;
  current_context->call = 0;
}

}  // namespace ringzero
