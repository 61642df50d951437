// A listener to torch's allocations.
#include "integrations/torch/live_tensors.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <utility>

namespace ringzero {

class LiveTensorBytes::Counter : public c10::MemoryReportingInfoBase {
 public:
  // alloc_size is negative when memory is freed.
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    bytes += alloc_size;
    peak = std::max(peak, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes = 0;
  int64_t peak = 0;
};

class LiveTensorBytes::Scope {
 public:
  explicit Scope(std::shared_ptr<Counter> counter)
      : guard_(c10::DebugInfoKind::PROFILER_STATE, std::move(counter)) {}

 private:
  c10::DebugInfoGuard guard_;
};

LiveTensorBytes::LiveTensorBytes()
    : counter_(std::make_shared<Counter>()), scope_(std::make_unique<Scope>(counter_)) {}

LiveTensorBytes::~LiveTensorBytes() = default;

int64_t LiveTensorBytes::bytes() const { return counter_->bytes; }

int64_t LiveTensorBytes::TakePeak() { return std::exchange(counter_->peak, counter_->bytes); }

void LiveTensorBytes::HandedOver(int64_t bytes) { counter_->bytes -= bytes; }

}  // namespace ringzero
