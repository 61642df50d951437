// LiveTensorBytes: how many bytes of CPU tensors this thread has allocated and not yet freed.
//
//   LiveTensorBytes live;               // counts from here on, on this thread
//   ... forward, backward ...
//   live.bytes();
//   live.HandedOver(n);                 // n bytes will be freed by another thread
//
// Counts by torch's own report of its allocations (c10/core/Allocator.h, MemoryReportingInfoBase);
// what existed before is not in it, nor what torch's operators keep outside of tensors. One at a
// time per thread, and not together with torch's profiler. Costs a lock per allocation, so it is
// for measuring.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LIVE_TENSORS_H_
#define RINGZERO_INTEGRATIONS_TORCH_LIVE_TENSORS_H_

#include <cstdint>
#include <memory>

namespace ringzero {

class LiveTensorBytes {
 public:
  LiveTensorBytes();
  ~LiveTensorBytes();
  LiveTensorBytes(const LiveTensorBytes&) = delete;
  LiveTensorBytes& operator=(const LiveTensorBytes&) = delete;

  int64_t bytes() const;
  // The most since the last call.
  int64_t TakePeak();
  void HandedOver(int64_t bytes);

 private:
  class Counter;
  class Scope;
  std::shared_ptr<Counter> counter_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LIVE_TENSORS_H_
