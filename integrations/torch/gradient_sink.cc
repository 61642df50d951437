// The computing thread's sink.
#include "integrations/torch/gradient_sink.h"

#include <utility>

namespace ringzero {
namespace {
thread_local std::shared_ptr<GradientSinkSlot> current_slot;
}  // namespace

GradientSink* CurrentGradientSink() {
  return current_slot == nullptr ? nullptr : current_slot->sink;
}

void SetCurrentGradientSink(std::shared_ptr<GradientSinkSlot> slot) {
  current_slot = std::move(slot);
}

}  // namespace ringzero
