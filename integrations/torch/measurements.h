// What computing takes on this machine: how fast it multiplies and copies, and the memory that a
// worker allocates for one micro-batch.
//
//   PrepareTorch(threads);
//   const MachineSpeed speed = MeasureSpeed();   // in a blink, for sharding/study/cost_profile.h
//   RZ_ASSIGN_OR_RETURN(const PassBytes memory, MeasurePass(run, {.train = …, .evaluate = …}));
//   memory.activations;
//
// Uses torch on the calling thread.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MEASUREMENTS_H_
#define RINGZERO_INTEGRATIONS_TORCH_MEASUREMENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "sharding/memory/fit_certificate.h"
#include "sharding/study/cost_profile.h"
#include "zero/precision.h"

namespace ringzero {

// With torch's threads of the calling thread: a product of two 512 x 512 fp32 matrices, and copies
// of 64 MiB; the fastest of a few. Some 0.1 s.
MachineSpeed MeasureSpeed();
// FLOP/s of 512 x 512 products in `type`. At most 8 after the first, and none begins after 50 ms.
double MeasureFlops(ValueType type = ValueType::kFp32);
// How many times longer products in `type` take than in fp32: measured for 50 ms, with matrices of
// 128 x 128.
double SlownessOf(ValueType type);

std::string LibTorchVersion();       // "2.11.0"
std::string LibTorchInstructions();  // which of its kernels run on this processor: "AVX2"

struct PassMemoryOptions {
  // A whole micro-batch, EndMicroBatch included. May throw.
  std::function<absl::Status(RingModel&, const LapTask&)> train;
  // Only the forward and what comes with it: called without autograd. Null: there is none.
  std::function<absl::Status(RingModel&, const LapTask&)> evaluate;
  int metrics_count = 1;
};

// One worker alone runs a few micro-batches of the plan's stages, and what torch allocates in the
// last one is counted. The parameters are zeros that take no memory, so any model can be measured
// if one micro-batch of it fits this machine. The numbers are the same every time, and as the
// allocator rounds them; this process has really had with_waiting_gradients. Errors are those of
// the model.
absl::StatusOr<PassBytes> MeasurePass(const PlannedRun& run, const PassMemoryOptions& options);

// How many bytes of CPU tensors this thread has allocated and not yet freed, from here on. Counts
// by torch's own report of its allocations (c10/core/Allocator.h, MemoryReportingInfoBase). Tensors
// from before are not counted, nor what torch's operators keep outside of tensors. One object at a
// time per thread, and not together with torch's profiler. Costs a lock per allocation, so it is
// for measuring.
class LiveTensorBytes {
 public:
  LiveTensorBytes();
  LiveTensorBytes(const LiveTensorBytes&) = delete;
  LiveTensorBytes& operator=(const LiveTensorBytes&) = delete;

  int64_t bytes() const;
  // The most since the last call.
  int64_t TakePeak();
  void HandedOver(int64_t bytes);  // they will be freed by another thread

 private:
  struct Counter;
  const std::shared_ptr<Counter> counter_;
  const std::shared_ptr<void> listening_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MEASUREMENTS_H_
