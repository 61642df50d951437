// The computing thread's sink.
#include "integrations/torch/gradient_sink.h"

namespace ringzero {
namespace {
thread_local GradientSink* current = nullptr;
}  // namespace

GradientSink* CurrentGradientSink() { return current; }

void SetCurrentGradientSink(GradientSink* sink) { current = sink; }

}  // namespace ringzero
