// Loads the libraries and looks their functions up.
#include "p2p/nccl/nccl_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/nccl/nccl_lane.h"

namespace ringzero {
namespace {

constexpr int kLeastVersion = NCCL_VERSION(2, 28, 0);

// From where the loader looks, else from where it was when this was built.
void* Open(const std::string& name, const char* built_folder) {
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return dlopen(absl::StrCat(built_folder, "/", name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition("transport nccl: no function ", name);
}

absl::Status CannotLoad(const std::string& name) {
  const char* why = dlerror();
  return FailedPrecondition("transport nccl: cannot load ", name, ": ", why == nullptr ? "" : why);
}

absl::Status Load(NcclApi& api) {
  const std::string runtime = absl::StrCat("libcudart.so.", CUDART_VERSION / 1000);
  void* cuda = Open(runtime, RINGZERO_CUDA_LIBRARY_FOLDER);
  if (cuda == nullptr) return CannotLoad(runtime);
  void* nccl = Open("libnccl.so.2", RINGZERO_NCCL_LIBRARY_FOLDER);
  if (nccl == nullptr) return CannotLoad("libnccl.so.2");
#define RZ_FIND_NCCL(name) RZ_RETURN_IF_ERROR(Find(nccl, #name, api.name));
  RZ_NCCL_FUNCTIONS(RZ_FIND_NCCL)
#undef RZ_FIND_NCCL
#define RZ_FIND_CUDA(name) RZ_RETURN_IF_ERROR(Find(cuda, #name, api.name));
  RZ_CUDA_FUNCTIONS(RZ_FIND_CUDA)
  RZ_FIND_CUDA(cudaMalloc)
  RZ_FIND_CUDA(cudaMallocManaged)
  RZ_FIND_CUDA(cudaMemcpy)
  RZ_FIND_CUDA(cudaEventRecord)
#undef RZ_FIND_CUDA
  int version = 0;
  const bool known = api.ncclGetVersion(&version) == ncclSuccess;
  if (known && version >= kLeastVersion) return absl::OkStatus();
  return FailedPrecondition("transport nccl: libnccl.so.2 is version ", version, ", at least ",
                            kLeastVersion, " is needed");
}

}  // namespace

const NcclApi& LoadedNccl() {
  static const NcclApi& loaded = *[] {
    auto* api = new NcclApi;
    api->status = Load(*api);
    return api;
  }();
  return loaded;
}

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return Internal(what, ": ", LoadedNccl().cudaGetErrorString(error));
}

absl::Status NcclStatus(ncclResult_t result, ncclComm_t communicator, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* more = communicator == nullptr ? "" : LoadedNccl().ncclGetLastError(communicator);
  const std::string text = absl::StrCat(what, ": ", LoadedNccl().ncclGetErrorString(result),
                                        *more == '\0' ? "" : ", ", more);
  const bool peer_is_gone = result == ncclRemoteError || result == ncclSystemError;
  return peer_is_gone ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::StatusOr<int> NcclDevices() {
  RZ_RETURN_IF_ERROR(LoadedNccl().status);
  int count = 0;
  const cudaError_t found = LoadedNccl().cudaGetDeviceCount(&count);
  if (found == cudaSuccess && count > 0) return count;
  return Unavailable("transport nccl: no GPU: ", found == cudaSuccess
                                                     ? "none is visible"
                                                     : LoadedNccl().cudaGetErrorString(found));
}

absl::Status NcclAvailable() { return NcclDevices().status(); }

absl::StatusOr<std::string> NcclVersions() {
  RZ_RETURN_IF_ERROR(LoadedNccl().status);
  int nccl = 0, cuda = 0;
  RZ_RETURN_IF_ERROR(NcclStatus(LoadedNccl().ncclGetVersion(&nccl), nullptr, "ncclGetVersion"));
  RZ_RETURN_IF_ERROR(
      CudaStatus(LoadedNccl().cudaRuntimeGetVersion(&cuda), "cudaRuntimeGetVersion"));
  return absl::StrCat("NCCL ", nccl / 10000, ".", nccl / 100 % 100, ".", nccl % 100,
                      ", CUDA runtime ", cuda / 1000, ".", cuda / 10 % 100);
}

}  // namespace ringzero
