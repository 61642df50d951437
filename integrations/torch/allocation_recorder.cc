// A listener to torch's allocations, which asks the allocator how it rounds.
#include "integrations/torch/allocation_recorder.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstddef>
#include <utility>

// jemalloc's, where the program has it: what it takes for a size, with the alignment's logarithm as
// its flags.
extern "C" size_t nallocx(size_t size, int flags) __attribute__((weak));

namespace ringzero {
namespace {

uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

}  // namespace

int64_t AllocatedBytes(int64_t bytes) {
  constexpr int kLogAlignment = 6;  // c10's of tensors
  if (bytes <= 0) return 0;
  if (nallocx != nullptr) {
    return static_cast<int64_t>(nallocx(static_cast<size_t>(bytes), kLogAlignment));
  }
  // glibc: a header and the alignment.
  constexpr int64_t kUnit = int64_t{1} << kLogAlignment;
  return (bytes + 16 + kUnit - 1) / kUnit * kUnit;
}

class AllocationRecorder::Listener : public c10::MemoryReportingInfoBase {
 public:
  // alloc_size is negative when memory is freed.
  void reportMemoryUsage(void* data, int64_t alloc_size, size_t, size_t, c10::Device) override {
    if (alloc_size > 0) {
      timeline.Allocate(AddressOf(data), AllocatedBytes(alloc_size));
    } else {
      timeline.Free(AddressOf(data));
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  PassTimeline timeline;
};

class AllocationRecorder::Scope {
 public:
  explicit Scope(std::shared_ptr<Listener> listener)
      : guard_(c10::DebugInfoKind::PROFILER_STATE, std::move(listener)) {}

 private:
  c10::DebugInfoGuard guard_;
};

AllocationRecorder::AllocationRecorder()
    : listener_(std::make_shared<Listener>()), scope_(std::make_unique<Scope>(listener_)) {}

AllocationRecorder::~AllocationRecorder() = default;

void AllocationRecorder::EndStage(const std::vector<const void*>& gradients) {
  std::vector<uint64_t> blocks;
  for (const void* gradient : gradients) blocks.push_back(AddressOf(gradient));
  listener_->timeline.EndStage(blocks);
}

PassTimeline AllocationRecorder::Take() { return std::exchange(listener_->timeline, {}); }

}  // namespace ringzero
