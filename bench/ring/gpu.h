// The GPUs of a run of ring_perf: whether there are any, and which one a worker's payload is in.
//
//   RZ_RETURN_IF_ERROR(CheckGpus(job));                           // before there are workers
//   RZ_ASSIGN_OR_RETURN(const int device, GpuOf(job, self));      // in a worker
//
// CUDA does not survive a fork: of these only CheckGpus may be called before workers are forked.
#ifndef RINGZERO_BENCH_RING_GPU_H_
#define RINGZERO_BENCH_RING_GPU_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "bench/ring/job.h"
#include "p2p/payload_memory.h"

namespace ringzero {

// NcclAvailable's error, where this machine has none or this build cannot use them.
absl::Status CheckGpus(const RingJob& job);

// Workers of a host take its GPUs in turn. The errors of NcclDevices.
absl::StatusOr<int> GpuOf(const RingJob& job, WorkerId worker);

// Where the payload of a worker's transport lies.
absl::StatusOr<PayloadMemory> MemoryOfPayload(const RingJob& job, WorkerId worker);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_GPU_H_
