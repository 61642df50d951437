// Memory of a GPU, from the CUDA runtime that NCCL is loaded with.
//
//   RZ_ASSIGN_OR_RETURN(const PayloadMemory memory, MakeCudaMemory(0, CudaPlace::kDevice));
#ifndef RINGZERO_P2P_NCCL_NCCL_MEMORY_H_
#define RINGZERO_P2P_NCCL_NCCL_MEMORY_H_

#include "absl/status/statusor.h"
#include "p2p/payload_memory.h"

namespace ringzero {

// Memory of the GPU; or, as if it were the host's, what both address, slowly (tests).
enum class CudaPlace { kDevice, kManaged };

// NcclAvailable's error where there is none or this was not built; InvalidArgument for a GPU that
// is not there. Thread-safe.
absl::StatusOr<PayloadMemory> MakeCudaMemory(int device, CudaPlace place);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_MEMORY_H_
