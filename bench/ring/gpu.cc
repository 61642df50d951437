// Asks CUDA in a process that is then thrown away.
#include "bench/ring/gpu.h"

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/ring/needs.h"
#include "p2p/launch/launcher.h"
#include "p2p/nccl/nccl_lane.h"

namespace ringzero {

absl::Status CheckGpus(const RingJob& job) {
  if (job.identity) return NcclAvailable();  // this process is the worker
  const auto ask = [](WorkerContext&) -> absl::StatusOr<std::string> {
    return std::string(NcclAvailable().message());
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> answer, LaunchProcesses({.workers = 1}, ask));
  return answer[0].empty() ? absl::OkStatus() : absl::UnavailableError(answer[0]);
}

absl::StatusOr<int> GpuOf(const RingJob& job, WorkerId worker) {
  RZ_ASSIGN_OR_RETURN(const int devices, NcclDevices());
  return PlaceOnHost(job, worker) % devices;
}

absl::StatusOr<PayloadMemory> MemoryOfPayload(const RingJob& job, WorkerId worker) {
  if (job.options.memory == MemoryKind::kHost) return HostMemory();
  RZ_ASSIGN_OR_RETURN(const int device, GpuOf(job, worker));
  return MakeCudaMemory(device, CudaPlace::kDevice);
}

}  // namespace ringzero
