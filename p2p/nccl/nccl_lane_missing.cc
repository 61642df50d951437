// What a build without CUDA or NCCL says.
#include "p2p/nccl/nccl_transport.h"

namespace ringzero {

absl::Status NcclAvailable() {
  return absl::UnimplementedError(
      "transport nccl: not built into this program (RINGZERO_WITH_CUDA and RINGZERO_WITH_NCCL "
      "found no CUDA toolkit with NCCL, or are OFF)");
}

absl::StatusOr<int> NcclDevices() { return NcclAvailable(); }

absl::StatusOr<PayloadMemory> MakeCudaMemory(int, CudaPlace) { return NcclAvailable(); }

absl::StatusOr<NcclLanes> MakeNcclLanes(const JobSeat&, const std::vector<WorkerPair>&, int,
                                        CudaPlace) {
  return NcclAvailable();
}

}  // namespace ringzero
