// cudaMalloc and cudaMemcpy, on the device that was asked for.
#include "p2p/nccl/nccl_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/nccl/nccl_api.h"
#include "p2p/nccl/nccl_lane.h"

namespace ringzero {
namespace {

constexpr size_t kLeastBytes = 64;  // of a mapping: cudaMalloc gives no address for none

void Release(std::byte* data, size_t) { (void)LoadedNccl().cudaFree(data); }

}  // namespace

absl::StatusOr<PayloadMemory> MakeCudaMemory(int device, CudaPlace place) {
  RZ_ASSIGN_OR_RETURN(const int devices, NcclDevices());
  if (device < 0 || device >= devices) {
    return InvalidArgument("GPU ", device, "; there are ", devices);
  }
  PayloadMemory memory;
  memory.kind = place == CudaPlace::kDevice ? MemoryKind::kCuda : MemoryKind::kHost;
  memory.map = [device, place](size_t bytes) -> absl::StatusOr<Mapping> {
    const NcclApi& api = LoadedNccl();
    RZ_RETURN_IF_ERROR(CudaStatus(api.cudaSetDevice(device), "cudaSetDevice"));
    void* data = nullptr;
    const size_t asked = std::max(bytes, kLeastBytes);
    const cudaError_t made = place == CudaPlace::kDevice
                                 ? api.cudaMalloc(&data, asked)
                                 : api.cudaMallocManaged(&data, asked, cudaMemAttachGlobal);
    if (made != cudaSuccess) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes on GPU ",
                                                       device, ": ", api.cudaGetErrorString(made)));
    }
    return Mapping::Foreign(static_cast<std::byte*>(data), bytes, Release);
  };
  memory.copy = [device](std::byte* to, const std::byte* from, size_t bytes) -> absl::Status {
    const NcclApi& api = LoadedNccl();
    RZ_RETURN_IF_ERROR(CudaStatus(api.cudaSetDevice(device), "cudaSetDevice"));
    RZ_RETURN_IF_ERROR(
        CudaStatus(api.cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy"));
    // Within the device it is only under way then. Lanes have streams of their own, which this does
    // not wait for.
    return CudaStatus(api.cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  };
  return memory;
}

}  // namespace ringzero
