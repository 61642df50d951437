// NcclApi: the functions of NCCL and CUDA that the lanes call, found when first asked for.
//
//   ncclResult_t result = LoadedNccl().ncclSend(…);    // after LoadedNccl().status said OK
//
// For the sources of lanes over NCCL alone: it includes the libraries' own headers. Loaded once per
// process and never unloaded (streams and communicators may still live). Thread-safe.
#ifndef RINGZERO_P2P_NCCL_NCCL_API_H_
#define RINGZERO_P2P_NCCL_NCCL_API_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "absl/status/status.h"

namespace ringzero {

#define RZ_NCCL_FUNCTIONS(F) \
  F(ncclGetVersion)          \
  F(ncclGetUniqueId)         \
  F(ncclCommInitRankConfig)  \
  F(ncclCommGetAsyncError)   \
  F(ncclCommAbort)           \
  F(ncclGetErrorString)      \
  F(ncclGetLastError) F(ncclSend) F(ncclRecv) F(ncclGroupStart) F(ncclGroupEnd)
#define RZ_CUDA_FUNCTIONS(F)   \
  F(cudaRuntimeGetVersion)     \
  F(cudaGetDeviceCount)        \
  F(cudaGetErrorString)        \
  F(cudaSetDevice)             \
  F(cudaDeviceGetPCIBusId)     \
  F(cudaStreamCreateWithFlags) \
  F(cudaStreamDestroy)         \
  F(cudaStreamSynchronize)     \
  F(cudaStreamQuery) F(cudaEventCreateWithFlags) F(cudaEventDestroy) F(cudaEventQuery) F(cudaFree)

struct NcclApi {
#define RZ_DECLARE(name) decltype(&::name) name = nullptr;
  RZ_NCCL_FUNCTIONS(RZ_DECLARE)
  RZ_CUDA_FUNCTIONS(RZ_DECLARE)
#undef RZ_DECLARE
  // C++ has overloads of these, so their types are written out.
  cudaError_t (*cudaMalloc)(void**, size_t) = nullptr;
  cudaError_t (*cudaMallocManaged)(void**, size_t, unsigned) = nullptr;
  cudaError_t (*cudaMemcpy)(void*, const void*, size_t, cudaMemcpyKind) = nullptr;
  cudaError_t (*cudaEventRecord)(cudaEvent_t, cudaStream_t) = nullptr;
  absl::Status status;  // of the loading; the functions are there only if it is OK
};
const NcclApi& LoadedNccl();

// Internal, in CUDA's words.
absl::Status CudaStatus(cudaError_t error, const char* what);
// In NCCL's words; OK while it is in progress. Unavailable where a peer is gone. No communicator:
// nullptr.
absl::Status NcclStatus(ncclResult_t result, ncclComm_t communicator, const char* what);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_API_H_
