// The computing thread's sink.
#include "integrations/torch/gradient_sink.h"

#include <utility>

namespace ringzero {
namespace {
thread_local std::shared_ptr<GradientSinkSlot> current;
}  // namespace

GradientSink* CurrentGradientSink() { return current == nullptr ? nullptr : current->sink; }

void SetCurrentGradientSink(std::shared_ptr<GradientSinkSlot> slot) { current = std::move(slot); }

}  // namespace ringzero
