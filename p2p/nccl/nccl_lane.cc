// All calls of NCCL and of the CUDA runtime beside it: how both are loaded, memory of a GPU, a Lane
// of NCCL's sends and receives, and how all of a worker's are connected.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/nccl/nccl_transport.h"

namespace ringzero {
namespace {

// The functions that this file calls, found when first asked for. The libraries are loaded once per
// process and never unloaded (streams and communicators may still live).
#define RZ_NCCL_FUNCTIONS(F) \
  F(ncclGetVersion)          \
  F(ncclGetUniqueId)         \
  F(ncclCommInitRankConfig)  \
  F(ncclCommGetAsyncError)   \
  F(ncclCommAbort)           \
  F(ncclGetErrorString)      \
  F(ncclGetLastError) F(ncclSend) F(ncclRecv) F(ncclGroupStart) F(ncclGroupEnd)
#define RZ_CUDA_FUNCTIONS(F)   \
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

const NcclApi& LoadedNccl() {
  static const NcclApi& loaded = *[] {
    auto* api = new NcclApi;
    api->status = Load(*api);
    return api;
  }();
  return loaded;
}

// Internal, in CUDA's words.
absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return Internal(what, ": ", LoadedNccl().cudaGetErrorString(error));
}

// In NCCL's words; OK while it is in progress. Unavailable where a peer is gone. No communicator:
// nullptr.
absl::Status NcclStatus(ncclResult_t result, ncclComm_t communicator, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* more = communicator == nullptr ? "" : LoadedNccl().ncclGetLastError(communicator);
  const std::string text = absl::StrCat(what, ": ", LoadedNccl().ncclGetErrorString(result),
                                        *more == '\0' ? "" : ", ", more);
  const bool peer_is_gone = result == ncclRemoteError || result == ncclSystemError;
  return peer_is_gone ? absl::UnavailableError(text) : absl::InternalError(text);
}

constexpr size_t kLeastBytes = 64;  // of a mapping: cudaMalloc gives no address for none

void Release(std::byte* data, size_t) { (void)LoadedNccl().cudaFree(data); }

constexpr size_t kWarmUpBytes = 64;
constexpr std::chrono::minutes kInitLimit(2);  // of all communicators together
constexpr std::chrono::seconds kAbortLimit(5);

// OK: it is done. Nothing but OK and errors comes out before `limit`.
absl::Status AwaitCommunicator(ncclComm_t communicator, const Deadline& limit, const char* what) {
  while (true) {
    ncclResult_t state = ncclSuccess;
    RZ_RETURN_IF_ERROR(
        NcclStatus(LoadedNccl().ncclCommGetAsyncError(communicator, &state), communicator, what));
    if (state != ncclInProgress) return NcclStatus(state, communicator, what);
    if (limit.over()) {
      return absl::DeadlineExceededError(absl::StrCat(what, " is not done in 2 minutes"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class NcclLane final : public Lane {
 public:
  NcclLane(const WorkerPair& pair, WorkerId self, int device)
      : pair_(pair), self_(self), device_(device) {}
  ~NcclLane() override {
    Abort();
    if (stream_ != nullptr) (void)LoadedNccl().cudaStreamDestroy(stream_);
    for (const cudaEvent_t event : free_events_) (void)LoadedNccl().cudaEventDestroy(event);
  }

  std::string name() const override { return absl::StrCat("nccl ", PairName()); }

  absl::Status Connect(const JobSeat& seat, const Deadline& limit) {
    const NcclApi& api = LoadedNccl();
    RZ_RETURN_IF_ERROR(CudaStatus(api.cudaSetDevice(device_), "cudaSetDevice"));
    RZ_RETURN_IF_ERROR(CudaStatus(api.cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                  "cudaStreamCreateWithFlags"));
    ncclUniqueId id = {};
    const std::string key = absl::StrCat("nccl/", PairName());
    if (pair_.first == self_) {
      RZ_RETURN_IF_ERROR(NcclStatus(api.ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
      RZ_RETURN_IF_ERROR(seat.rendezvous->Put(key, std::string(id.internal, sizeof(id.internal))));
    } else {
      const absl::StatusOr<std::string> text = seat.rendezvous->Get(key, limit.Left());
      if (!text.ok()) {
        return WhileWaiting(text.status(), absl::StrCat("worker ", pair_.first.value,
                                                        " has not told lane ", PairName()));
      }
      if (text->size() != sizeof(id.internal)) {
        return Internal("'", key, "' has ", text->size(), " bytes");
      }
      std::memcpy(id.internal, text->data(), text->size());
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const int workers = pair_.first == pair_.second ? 1 : 2;
    const ncclResult_t begun =
        api.ncclCommInitRankConfig(&communicator_, workers, id, PlaceOf(self_), &config);
    RZ_RETURN_IF_ERROR(NcclStatus(begun, communicator_, "ncclCommInitRankConfig"));
    return AwaitCommunicator(communicator_, limit, "ncclCommInitRankConfig");
  }

  // Within one group call of all lanes, on `scratch` of two warm-up payloads.
  absl::Status WarmUp(std::byte* scratch) {
    const WorkerId peer = pair_.first == self_ ? pair_.second : pair_.first;
    for (const auto direction : {LaneOp::Direction::kSend, LaneOp::Direction::kReceive}) {
      const ncclResult_t result = Enqueue({direction, peer, {scratch, kWarmUpBytes}});
      RZ_RETURN_IF_ERROR(NcclStatus(result, communicator_, "the first use"));
      scratch += kWarmUpBytes;
    }
    return absl::OkStatus();
  }

  absl::Status AwaitWarm(const Deadline& limit) {
    RZ_RETURN_IF_ERROR(AwaitCommunicator(communicator_, limit, "the first use"));
    while (true) {
      const cudaError_t state = LoadedNccl().cudaStreamQuery(stream_);
      if (state == cudaSuccess) return absl::OkStatus();
      if (state != cudaErrorNotReady) return CudaStatus(state, "the first use");
      if (limit.over()) {
        return absl::DeadlineExceededError("the first use is not done in 2 minutes");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  absl::Status Start(const LaneOp& op) override {
    if (communicator_ == nullptr) return absl::CancelledError("it was aborted");
    queue_.push_back(op);
    return Advance();
  }

  absl::StatusOr<int64_t> Completed() override {
    if (communicator_ == nullptr) return absl::CancelledError("it was aborted");
    RZ_RETURN_IF_ERROR(Advance());
    return completed_;
  }

  void Abort() override {
    if (communicator_ == nullptr) return;
    const NcclApi& api = LoadedNccl();
    (void)api.cudaSetDevice(device_);
    (void)api.ncclCommAbort(std::exchange(communicator_, nullptr));
    // Its kernels leave when they see that; until then they may write.
    const Deadline limit(kAbortLimit);
    while (api.cudaStreamQuery(stream_) == cudaErrorNotReady && !limit.over()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (const Marked& each : marked_) free_events_.push_back(each.event);
    marked_.clear();
    queue_.clear();
  }

 private:
  struct Marked {  // on the device, until its event
    cudaEvent_t event;
    int operations;
  };

  // A worker's place in the communicator: what NCCL counts.
  int PlaceOf(WorkerId worker) const { return worker == pair_.first ? 0 : 1; }
  std::string PairName() const {
    return absl::StrCat(pair_.first.value, " -> ", pair_.second.value);
  }
  absl::Status Advance() {
    RZ_RETURN_IF_ERROR(CudaStatus(LoadedNccl().cudaSetDevice(device_), "cudaSetDevice"));
    while (true) {
      RZ_ASSIGN_OR_RETURN(const bool busy, IsBusy());
      if (busy) break;  // nothing may be called of it now
      if (launching_ > 0) RZ_RETURN_IF_ERROR(Mark());
      const bool to_oneself = !queue_.empty() && queue_.front().peer == self_;
      if (queue_.empty() || (to_oneself && queue_.size() < 2)) break;
      RZ_RETURN_IF_ERROR(LaunchNext());
    }
    return Collect();
  }

  absl::StatusOr<bool> IsBusy() {
    ncclResult_t state = ncclSuccess;
    RZ_RETURN_IF_ERROR(NcclStatus(LoadedNccl().ncclCommGetAsyncError(communicator_, &state),
                                  communicator_, "ncclCommGetAsyncError"));
    RZ_RETURN_IF_ERROR(NcclStatus(state, communicator_, "an operation"));
    return state == ncclInProgress;
  }

  absl::Status LaunchNext() {
    // To oneself: only both ends together can be launched.
    launching_ = queue_.front().peer == self_ ? 2 : 1;
    if (launching_ == 2) {
      RZ_RETURN_IF_ERROR(
          NcclStatus(LoadedNccl().ncclGroupStart(), communicator_, "ncclGroupStart"));
    }
    absl::Status status;
    for (int i = 0; i < launching_; ++i) {
      const LaneOp op = queue_.front();
      queue_.pop_front();
      const bool sends = op.direction == LaneOp::Direction::kSend;
      status.Update(NcclStatus(Enqueue(op), communicator_, sends ? "ncclSend" : "ncclRecv"));
    }
    if (launching_ == 2) {
      status.Update(NcclStatus(LoadedNccl().ncclGroupEnd(), communicator_, "ncclGroupEnd"));
    }
    return status;
  }

  ncclResult_t Enqueue(const LaneOp& op) {
    const int place = PlaceOf(op.peer);
    const auto [data, bytes] = std::pair(op.block.data(), op.block.size());
    return op.direction == LaneOp::Direction::kSend
               ? LoadedNccl().ncclSend(data, bytes, ncclUint8, place, communicator_, stream_)
               : LoadedNccl().ncclRecv(data, bytes, ncclUint8, place, communicator_, stream_);
  }

  absl::Status Mark() {
    cudaEvent_t event = nullptr;
    if (free_events_.empty()) {
      RZ_RETURN_IF_ERROR(
          CudaStatus(LoadedNccl().cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     "cudaEventCreate"));
    } else {
      event = free_events_.back();
      free_events_.pop_back();
    }
    marked_.push_back({event, std::exchange(launching_, 0)});
    return CudaStatus(LoadedNccl().cudaEventRecord(event, stream_), "cudaEventRecord");
  }

  absl::Status Collect() {
    while (!marked_.empty()) {
      const cudaError_t state = LoadedNccl().cudaEventQuery(marked_.front().event);
      if (state == cudaErrorNotReady) break;
      RZ_RETURN_IF_ERROR(CudaStatus(state, "a transfer"));
      completed_ += marked_.front().operations;
      free_events_.push_back(marked_.front().event);
      marked_.pop_front();
    }
    return absl::OkStatus();
  }

  const WorkerPair pair_;
  const WorkerId self_;
  const int device_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::deque<LaneOp> queue_;  // not launched
  int launching_ = 0;         // operations that NCCL is enqueueing
  std::deque<Marked> marked_;
  std::vector<cudaEvent_t> free_events_;
  int64_t completed_ = 0;
};

// What names a GPU in a whole job. NCCL would refuse it too, later and in other words.
absl::Status CheckGpus(const JobSeat& seat, int device) {
  char bus[64] = {}, host[256] = {};
  RZ_RETURN_IF_ERROR(CudaStatus(LoadedNccl().cudaDeviceGetPCIBusId(bus, sizeof(bus), device),
                                "cudaDeviceGetPCIBusId"));
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  const std::string mine = absl::StrCat(host, " GPU ", bus);
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> gpus,
                      TellAll(seat, "nccl/gpu", mine, "has not told its GPU"));
  for (int w = 0; w < seat.workers; ++w) {
    if (w == seat.self.value || gpus[w] != mine) continue;
    return InvalidArgument("transport nccl: workers ", seat.self.value, " and ", w, " both have ",
                           mine, "; each needs a GPU of its own");
  }
  return absl::OkStatus();
}

absl::Status WarmUpAll(const std::vector<NcclLane*>& lanes, const PayloadMemory& memory,
                       const Deadline& limit) {
  RZ_ASSIGN_OR_RETURN(const Mapping scratch, memory.map(2 * kWarmUpBytes * lanes.size()));
  RZ_RETURN_IF_ERROR(NcclStatus(LoadedNccl().ncclGroupStart(), nullptr, "ncclGroupStart"));
  absl::Status status;
  std::byte* at = scratch.data();
  for (NcclLane* lane : lanes) {
    if (status.ok()) status = lane->WarmUp(at);
    at += 2 * kWarmUpBytes;
  }
  status.Update(NcclStatus(LoadedNccl().ncclGroupEnd(), nullptr, "ncclGroupEnd"));
  for (NcclLane* lane : lanes) {
    if (status.ok()) status = Annotate(lane->AwaitWarm(limit), lane->name());
  }
  // `scratch` goes after all that may still use it.
  for (NcclLane* lane : lanes) {
    if (!status.ok()) lane->Abort();
  }
  return status;
}

}  // namespace

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

absl::StatusOr<NcclLanes> MakeNcclLanes(const JobSeat& seat, const std::vector<WorkerPair>& pairs,
                                        int device, CudaPlace place) {
  NcclLanes made;
  RZ_ASSIGN_OR_RETURN(made.memory, MakeCudaMemory(device, place));
  const Deadline limit(kInitLimit);
  RZ_RETURN_IF_ERROR(CudaStatus(LoadedNccl().cudaSetDevice(device), "cudaSetDevice"));
  RZ_RETURN_IF_ERROR(CheckGpus(seat, device));
  std::vector<NcclLane*> mine;
  // One after the other, in the order of all workers: nobody waits in a circle.
  for (const WorkerPair& pair : pairs) {
    if (pair.first != seat.self && pair.second != seat.self) {
      made.lanes.push_back(nullptr);
      continue;
    }
    auto lane = std::make_unique<NcclLane>(pair, seat.self, device);
    RZ_RETURN_IF_ERROR(Annotate(lane->Connect(seat, limit), lane->name()));
    mine.push_back(lane.get());
    made.lanes.push_back(std::move(lane));
  }
  RZ_RETURN_IF_ERROR(WarmUpAll(mine, made.memory, limit));
  return made;
}

}  // namespace ringzero
