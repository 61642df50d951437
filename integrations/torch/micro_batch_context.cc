// The computing thread's place in the run.
#include "integrations/torch/micro_batch_context.h"

namespace ringzero {
namespace {
thread_local MicroBatchContext* current = nullptr;
}  // namespace

MicroBatchContext* CurrentContext() { return current; }

MicroBatchScope::MicroBatchScope(MicroBatchContext context) : context_(context), outer_(current) {
  current = &context_;
}

MicroBatchScope::~MicroBatchScope() { current = outer_; }

void EnterLayer(int64_t layer) {
  if (current == nullptr) return;
  current->layer = layer;
  current->call = 0;
}

}  // namespace ringzero
