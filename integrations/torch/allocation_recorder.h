// AllocationRecorder: every allocation and release of CPU tensors on this thread, as a timeline.
//
//   AllocationRecorder recorder;                 // from here on, on this thread
//   ... a forward and a backward ...
//   const PassTimeline pass = recorder.Take();   // so far; a new one begins
//   pass.Peak(PassTimeline::Gradients::kNone);
//
// Bytes are what the process' allocator takes for them: jemalloc's size classes, where it is the
// allocator. What torch's operators keep outside of tensors is not seen. One at a time per thread,
// and not together with LiveTensorBytes or torch's profiler.
#ifndef RINGZERO_INTEGRATIONS_TORCH_ALLOCATION_RECORDER_H_
#define RINGZERO_INTEGRATIONS_TORCH_ALLOCATION_RECORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "sharding/pass_timeline.h"

namespace ringzero {

// What the allocator takes for a tensor of `bytes`.
int64_t AllocatedBytes(int64_t bytes);

class AllocationRecorder {
 public:
  AllocationRecorder();
  ~AllocationRecorder();
  AllocationRecorder(const AllocationRecorder&) = delete;
  AllocationRecorder& operator=(const AllocationRecorder&) = delete;

  // The backward of a stage is over; these are the addresses of its gradients.
  void EndStage(const std::vector<const void*>& gradients);
  PassTimeline Take();

 private:
  class Listener;
  class Scope;
  std::shared_ptr<Listener> listener_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_ALLOCATION_RECORDER_H_
