// All calls of UCX: contexts, endpoints, requests, memory handles; and how UCX is loaded.
#include "p2p/ucx/ucx_worker.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/buffer.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/ucx/ucx_packet.h"

namespace ringzero {
namespace {

constexpr unsigned kMessageId = 1;
constexpr size_t kMostLanes = 16;
constexpr size_t kPrefetchBytes = 1024;  // then the hardware has seen where this goes
constexpr double kShmWorkerMib = 4.25;   // 512 buffers of 8 KiB and a queue
constexpr double kShmFreeMib = 16;
constexpr std::chrono::seconds kCloseLimit(1);
constexpr std::chrono::milliseconds kStillness(10);  // after which what has not ended will not

// UCX's functions that this file calls, found when UCX is first asked for. UCX is loaded once per
// process and never unloaded.
// clang-format off
#define RZ_UCX_FUNCTIONS(F)                                                                     \
  F(ucp_get_version_string)                                                                     \
  F(ucp_config_read) F(ucp_config_modify) F(ucp_config_release)                                 \
  F(ucp_init_version) F(ucp_cleanup) F(ucp_context_query)                                       \
  F(ucp_worker_create) F(ucp_worker_destroy) F(ucp_worker_query) F(ucp_worker_release_address)  \
  F(ucp_worker_set_am_recv_handler)                                                             \
  F(ucp_worker_get_efd) F(ucp_worker_arm) F(ucp_worker_progress)                                \
  F(ucp_ep_create) F(ucp_ep_close_nbx) F(ucp_ep_query)                                          \
  F(ucp_mem_map) F(ucp_mem_unmap) F(ucp_mem_query)                                              \
  F(ucp_am_send_nbx) F(ucp_am_recv_data_nbx) F(ucp_am_data_release)                             \
  F(ucp_request_check_status) F(ucp_request_free)                                               \
  F(ucs_status_string) F(ucs_debug_disable_signal) F(ucs_global_opts_set_value)
// clang-format on

struct UcxApi {
#define RZ_DECLARE(name) decltype(&::name) name = nullptr;
  RZ_UCX_FUNCTIONS(RZ_DECLARE)
#undef RZ_DECLARE
  absl::Status status;  // of the loading; the functions are there only if it is OK
};

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition("transport ucx: this UCX has no function ", name, "; 1.17 would do");
}

absl::Status Load(UcxApi& api) {
  // From where it was when this was built, else from where the loader looks. It brings libucs.
  void* ucx = dlopen(RINGZERO_UCX_LIBRARY_FOLDER "/libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (ucx == nullptr) ucx = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (ucx == nullptr) {
    const char* why = dlerror();
    return FailedPrecondition("transport ucx: UCX cannot be loaded (pip install libucx-cu13): ",
                              why == nullptr ? "" : why);
  }
#define RZ_FIND(name) RZ_RETURN_IF_ERROR(Find(ucx, #name, api.name));
  RZ_UCX_FUNCTIONS(RZ_FIND)
#undef RZ_FIND
  // UCX takes SIGHUP when it is loaded, to wait for a debugger then: a hang-up would end nothing,
  // and nobody could see that nohup has it ignored. UCX_DEBUG_SIGNO can name another signal.
  struct sigaction action = {};
  Dl_info owner = {};
  sigaction(SIGHUP, nullptr, &action);
  const bool found = dladdr(reinterpret_cast<void*>(action.sa_handler), &owner) != 0;
  if (found && std::strstr(owner.dli_fname, "libucs") != nullptr) {
    api.ucs_debug_disable_signal(SIGHUP);
  }
  return absl::OkStatus();
}

const UcxApi& LoadedUcx() {
  static const UcxApi& loaded = *[] {
    auto* api = new UcxApi;
    api->status = Load(*api);
    return api;
  }();
  return loaded;
}

absl::Status Error(const char* what, ucs_status_t status) {
  return Internal("UCX: ", what, ": ", LoadedUcx().ucs_status_string(status));
}

absl::Status StatusOf(ucs_status_t status) {
  if (status == UCS_OK) return absl::OkStatus();
  if (status == UCS_ERR_CANCELED) return absl::CancelledError("cancelled");
  const std::string words = absl::StrCat("UCX: ", LoadedUcx().ucs_status_string(status));
  if (status == UCS_ERR_MESSAGE_TRUNCATED) return absl::InternalError(words);
  return absl::UnavailableError(words);
}

// `interfaces` for TCP, and the RDMA devices, which open no port.
std::string Devices(std::vector<std::string> interfaces) {
  std::error_code none;
  if (std::filesystem::exists("/dev/infiniband", none)) {
    for (const auto& each : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
      interfaces.push_back(each.path().filename().string());
    }
  }
  return absl::StrJoin(interfaces, ",");
}

// What UCX must be told so that nobody else reaches it, that a death is noticed and that an end is
// clean (docs/p2p.md); the environment goes first.
UcxSettings Defaults(const UcxPortOptions& options) {
  const auto keepalive = std::clamp<std::chrono::milliseconds>(
      options.transport.peer_timeout / 5, std::chrono::milliseconds(10), std::chrono::seconds(1));
  const bool cuda = options.transport.memory == MemoryKind::kCuda;
  const bool network = !options.ucx.elsewhere.empty();
  UcxSettings settings = {
      {"TLS", network ? "^sysv" : absl::StrCat(kUcxHostTransports, cuda ? ",cuda" : "")},
      {"ZCOPY_THRESH", "inf"},
      {"RNDV_THRESH", absl::StrCat(kUcxSmallBytes + 1)},  // nothing offered is smaller, but in GPUs
      {"POSIX_ERROR_HANDLING", "y"},
      {"SYSV_ERROR_HANDLING", "y"},
      {"POSIX_ALLOC", "md"},  // else it goes on without memory, and crashes
      {"SYSV_ALLOC", "md"},
      {"CMA_MEMORY_INVALIDATE", "y"},  // else it gives up cma, two thirds of the bandwidth
      {"KEEPALIVE_INTERVAL", absl::StrCat(keepalive.count(), "ms")},
      {"RESOLVE_REMOTE_EP_ID", "on"}};
  if (const auto& names = options.ucx.interfaces; !names.empty()) {
    settings.push_back({"NET_DEVICES", Devices(names)});
  }
  return settings;
}

UcxSettings SettingsOf(const UcxPortOptions& options) {
  UcxSettings settings;
  for (auto& each : Defaults(options)) {
    if (std::getenv(("UCX_" + each.first).c_str()) == nullptr) settings.push_back(each);
  }
  const UcxSettings& given = options.ucx.settings;
  settings.insert(settings.end(), given.begin(), given.end());
  return settings;
}

// The value of UCX_TLS that counts.
std::string Transports(const UcxSettings& settings) {
  for (auto each = settings.rbegin(); each != settings.rend(); ++each) {
    if (each->first == "TLS") return each->second;
  }
  const char* const given = std::getenv("UCX_TLS");
  return given == nullptr ? "all" : given;
}

bool UsesPosix(absl::string_view transports) {
  const bool all_but = absl::ConsumePrefix(&transports, "^");
  const std::vector<absl::string_view> words = absl::StrSplit(transports, ',');
  const bool named = std::ranges::any_of(words, [](absl::string_view each) {
    return each == "posix" || each == "mm" || each == "sm" || each == "shm" || each == "all";
  });
  return named != all_but;
}

// UCX does without /dev/shm where less than 16 MiB are free (POSIX_SHM_MIN_SIZE). Where it takes
// itself below that while it starts, it ends with an error that does not say so.
absl::Status CheckShm(const UcxPortOptions& options) {
  struct statvfs facts = {};
  if (!UsesPosix(Transports(SettingsOf(options))) || statvfs("/dev/shm", &facts) != 0) {
    return absl::OkStatus();
  }
  const auto mib = [&](uint64_t blocks) {
    return static_cast<double>(blocks * facts.f_bsize) / (1 << 20);
  };
  if (mib(facts.f_bavail) >= kShmFreeMib + kShmWorkerMib) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "UCX needs %.2f MiB of /dev/shm for each worker of a host, and %.0f MiB that stay free; "
      "/dev/shm has %.1f MiB, of which %.1f are free (a container's: --shm-size; a UCX_TLS without "
      "posix needs none)",
      kShmWorkerMib, kShmFreeMib, mib(facts.f_blocks), mib(facts.f_bavail)));
}

absl::Status Configure(ucp_config_t* config, const UcxPortOptions& options) {
  for (const auto& [name, value] : SettingsOf(options)) {
    const ucs_status_t status = LoadedUcx().ucp_config_modify(config, name.c_str(), value.c_str());
    if (status == UCS_OK) continue;
    return InvalidArgument("UCX refuses the setting ", name, "=", value, ": ",
                           LoadedUcx().ucs_status_string(status));
  }
  return absl::OkStatus();
}

// UCX keeps in a cache what kind of memory lies where, and takes what the cache has not seen for
// the host's: it then reads the GPU's memory as its own, and crashes. Without the cache it asks
// CUDA, but only about memory that is registered: every operation says its memory's kind.
absl::Status KnowMemoryOfGpus() {
  if (std::getenv("UCX_MEMTYPE_CACHE") != nullptr) return absl::OkStatus();
  const ucs_status_t status = LoadedUcx().ucs_global_opts_set_value("MEMTYPE_CACHE", "n");
  return status == UCS_OK ? absl::OkStatus()
                          : Error("it keeps its cache of kinds of memory", status);
}

absl::StatusOr<ucp_context_h> MakeContext(const UcxPortOptions& options) {
  if (options.transport.memory == MemoryKind::kCuda) RZ_RETURN_IF_ERROR(KnowMemoryOfGpus());
  ucp_config_t* config = nullptr;
  ucs_status_t status = LoadedUcx().ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return Error("its settings cannot be read", status);
  const absl::Status configured = Configure(config, options);
  ucp_context_h context = nullptr;
  if (configured.ok()) {
    ucp_params_t params = {};
    params.field_mask =
        UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM;
    if (options.transport.progress == ProgressMode::kThread) params.features |= UCP_FEATURE_WAKEUP;
    params.estimated_num_eps = static_cast<size_t>(options.seat.workers);
    params.name = "ringzero";
    status = LoadedUcx().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  }
  LoadedUcx().ucp_config_release(config);
  RZ_RETURN_IF_ERROR(configured);
  if (status != UCS_OK) return Error("it cannot start", status);
  return context;
}

absl::Status CheckMemory(ucp_context_h context, MemoryKind kind) {
  if (kind == MemoryKind::kHost) return absl::OkStatus();
  ucp_context_attr_t facts = {};
  facts.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  const ucs_status_t status = LoadedUcx().ucp_context_query(context, &facts);
  if (status != UCS_OK) return Error("it does not say what memory it knows", status);
  if ((facts.memory_types & (uint64_t{1} << UCS_MEMORY_TYPE_CUDA)) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "memory 'cuda' over ucx: this UCX finds no CUDA here (no GPU, no driver, or UCX_TLS leaves "
      "cuda_copy out)");
}

ucp_request_param_t OperationParam(UcxOperation* operation) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.user_data = operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

UcxWorker::Fate FateOf(ucs_status_ptr_t result) {
  if (result == nullptr) return UcxWorker::Fate::kDone;
  return UCS_PTR_IS_ERR(result) ? UcxWorker::Fate::kFailed : UcxWorker::Fate::kUnderWay;
}

}  // namespace

struct UcxWorker::Calls {
  static ucs_status_t OnMessage(void* arg, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
    UcxListener::Message message;
    message.header = {static_cast<const std::byte*>(header), header_bytes};
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      message.offer = data;
      message.offered_bytes = bytes;
    } else {
      message.data = {static_cast<const std::byte*>(data), bytes};
      // All of it comes from another core's cache: at once, not the header first.
      for (size_t at = 0; at < std::min(bytes, kPrefetchBytes); at += kPayloadAlignment) {
        __builtin_prefetch(message.data.data() + at);
      }
    }
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) message.reply = param->reply_ep;
    return static_cast<UcxListener*>(arg)->OnMessage(message) ? UCS_INPROGRESS : UCS_OK;
  }

  static void OnSent(void* request, ucs_status_t status, void* cookie) {
    OnFetched(request, status, 0, cookie);
  }
  static void OnFetched(void* request, ucs_status_t status, size_t bytes, void* cookie) {
    LoadedUcx().ucp_request_free(request);
    auto* operation = static_cast<UcxOperation*>(cookie);
    operation->listener->OnDone(*operation, StatusOf(status), bytes);
  }

  static void OnError(void* arg, ucp_ep_h, ucs_status_t status) {
    auto* endpoint = static_cast<Endpoint*>(arg);
    if (std::exchange(endpoint->broken, true)) return;
    endpoint->listener->OnBroken(endpoint->peer, StatusOf(status));
  }

  // Payload that lies in registered memory.
  static void NameMemory(const UcxWorker& worker, const std::byte* data,
                         ucp_request_param_t& param) {
    for (const Region& region : worker.regions_) {
      const std::byte* const begin = region.bytes.data();
      if (data < begin || data >= begin + region.bytes.size()) continue;
      param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
      param.memh = region.handle;
      param.memory_type = static_cast<ucs_memory_type_t>(region.type);
    }
  }
};

absl::Status UcxWorker::Start(ProgressMode progress) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.am_alignment = kPayloadAlignment;  // small payloads are copied out of there
  ucs_status_t status = LoadedUcx().ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return Error("it cannot make a worker", status);
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = Calls::OnMessage;
  handler.arg = listener_;
  status = LoadedUcx().ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return Error("it takes no handler of messages", status);
  RZ_ASSIGN_OR_RETURN(address_, Address(0));
  RZ_ASSIGN_OR_RETURN(network_address_, Address(UCP_WORKER_ADDRESS_FLAG_NET_ONLY));
  if (progress == ProgressMode::kCaller) return absl::OkStatus();
  status = LoadedUcx().ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return Error("it has no descriptor to wait for", status);
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxWorker::Address(uint32_t flags) const {
  ucp_worker_attr_t facts = {};
  facts.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  facts.address_flags = flags;
  const ucs_status_t status = LoadedUcx().ucp_worker_query(worker_, &facts);
  if (status != UCS_OK) return Error("it has no address", status);
  std::string bytes(reinterpret_cast<const char*>(facts.address), facts.address_length);
  LoadedUcx().ucp_worker_release_address(worker_, facts.address);
  return bytes;
}

void UcxWorker::Close(Endpoint& endpoint) {
  if (endpoint.handle == nullptr) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucp_ep_h handle = std::exchange(endpoint.handle, nullptr);
  endpoint.broken = true;
  ucs_status_ptr_t request = LoadedUcx().ucp_ep_close_nbx(handle, &param);
  if (UCS_PTR_IS_PTR(request)) endpoint.closing = request;
}

// A forced close should wait for nobody, but one to a worker that died may never end. So it goes on
// beside everything else, and is left where it is when nothing moves any more.
void UcxWorker::AwaitCloses() {
  ProgressWhile(kCloseLimit, [this] {
    return std::ranges::any_of(endpoints_, [](const Endpoint& endpoint) {
      return endpoint.closing != nullptr &&
             LoadedUcx().ucp_request_check_status(endpoint.closing) == UCS_INPROGRESS;
    });
  });
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.closing != nullptr)
      LoadedUcx().ucp_request_free(std::exchange(endpoint.closing, nullptr));
  }
}

void UcxWorker::ProgressWhile(std::chrono::milliseconds limit,
                              const std::function<bool()>& wanted) {
  auto moved = AwakeNow();
  const auto until = moved + limit;
  for (auto now = moved; now < std::min(until, moved + kStillness) && wanted(); now = AwakeNow()) {
    if (Progress()) moved = now;
  }
}

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const UcxPortOptions& options,
                                                             UcxListener* listener) {
  RZ_RETURN_IF_ERROR(LoadedUcx().status);
  RZ_RETURN_IF_ERROR(CheckShm(options));
  std::unique_ptr<UcxWorker> worker(new UcxWorker(options, listener));
  RZ_ASSIGN_OR_RETURN(worker->context_, MakeContext(options));
  RZ_RETURN_IF_ERROR(CheckMemory(worker->context_, options.transport.memory));
  const absl::Status started = worker->Start(options.transport.progress);
  if (started.ok()) return worker;
  // Several workers looked at once, and each saw enough for itself.
  RZ_RETURN_IF_ERROR(CheckShm(options));
  return started;
}

UcxWorker::UcxWorker(const UcxPortOptions& options, UcxListener* listener)
    : listener_(listener), memory_(options.transport.memory) {
  for (int peer = 0; peer < options.seat.workers; ++peer) endpoints_.push_back({listener, peer});
}

UcxWorker::~UcxWorker() {
  if (context_ == nullptr) return;
  for (Endpoint& endpoint : endpoints_) Close(endpoint);
  AwaitCloses();
  if (worker_ != nullptr) LoadedUcx().ucp_worker_destroy(worker_);
  for (const Region& region : regions_) LoadedUcx().ucp_mem_unmap(context_, region.handle);
  LoadedUcx().ucp_cleanup(context_);
}

absl::Status UcxWorker::Connect(int peer, const std::string& address) {
  Endpoint& endpoint = endpoints_[peer];
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = Calls::OnError;
  params.err_handler.arg = &endpoint;
  const ucs_status_t status = LoadedUcx().ucp_ep_create(worker_, &params, &endpoint.handle);
  if (status == UCS_OK) return absl::OkStatus();
  return Unavailable("UCX: no way to worker ", peer,
                     " is found: ", LoadedUcx().ucs_status_string(status),
                     " (UCX_TLS and UCX_NET_DEVICES choose the ways)");
}

absl::Status UcxWorker::Register(std::span<std::byte> memory) {
  if (memory.empty()) return absl::OkStatus();
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  Region region = {.bytes = memory};
  const ucs_status_t status = LoadedUcx().ucp_mem_map(context_, &params, &region.handle);
  if (status != UCS_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "UCX: ", memory.size(),
        " bytes cannot be registered: ", LoadedUcx().ucs_status_string(status), " (ulimit -l?)"));
  }
  ucp_mem_attr_t facts = {};
  facts.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
  const ucs_status_t queried = LoadedUcx().ucp_mem_query(region.handle, &facts);
  region.type = facts.mem_type;
  regions_.push_back(region);  // the worker's end unmaps it, whatever follows
  if (queried != UCS_OK) return Error("it does not say what kind of memory it has", queried);
  if (memory_ != MemoryKind::kHost && region.type == UCS_MEMORY_TYPE_HOST) {
    return absl::InvalidArgumentError(
        "UCX takes a GPU's memory for the host's: leave UCX_MEMTYPE_CACHE unset");
  }
  return absl::OkStatus();
}

UcxWorker::Fate UcxWorker::SendMessage(int peer, const Send& send) {
  const Endpoint& endpoint = endpoints_[peer];
  if (endpoint.broken || endpoint.handle == nullptr) return Fate::kFailed;
  ucp_request_param_t param = OperationParam(send.operation);
  if (send.offer) {
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_MULTI_SEND;  // for bandwidth
    Calls::NameMemory(*this, send.data.data(), param);
  }
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = Calls::OnSent;
  param.flags = send.offer ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  if (send.wants_reply) param.flags |= UCP_AM_SEND_FLAG_REPLY;
  return FateOf(LoadedUcx().ucp_am_send_nbx(endpoint.handle, kMessageId, send.header.data(),
                                            send.header.size(), send.data.data(), send.data.size(),
                                            &param));
}

UcxWorker::Fate UcxWorker::Fetch(void* offer, std::span<std::byte> into, UcxOperation* operation) {
  ucp_request_param_t param = OperationParam(operation);
  Calls::NameMemory(*this, into.data(), param);
  param.cb.recv_am = Calls::OnFetched;
  return FateOf(LoadedUcx().ucp_am_recv_data_nbx(worker_, offer, into.data(), into.size(), &param));
}

void UcxWorker::Decline(void* offer) { LoadedUcx().ucp_am_data_release(worker_, offer); }

void UcxWorker::Reply(void* reply, std::span<const std::byte> header) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_COPY_HEADER;
  ucs_status_ptr_t request = LoadedUcx().ucp_am_send_nbx(
      static_cast<ucp_ep_h>(reply), kMessageId, header.data(), header.size(), nullptr, 0, &param);
  if (UCS_PTR_IS_PTR(request)) LoadedUcx().ucp_request_free(request);
}

bool UcxWorker::Progress() { return LoadedUcx().ucp_worker_progress(worker_) != 0; }

bool UcxWorker::Arm() { return LoadedUcx().ucp_worker_arm(worker_) == UCS_OK; }

std::string UcxWorker::Lanes(int peer) const {
  const Endpoint& endpoint = endpoints_[peer];
  if (endpoint.broken || endpoint.handle == nullptr) return "";
  std::array<ucp_transport_entry_t, kMostLanes> entries = {};
  ucp_ep_attr_t facts = {};
  facts.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
  facts.transports.entries = entries.data();
  facts.transports.num_entries = entries.size();
  facts.transports.entry_size = sizeof(entries[0]);
  if (LoadedUcx().ucp_ep_query(endpoint.handle, &facts) != UCS_OK) return "";
  std::string lanes;
  for (unsigned i = 0; i < facts.transports.num_entries; ++i) {
    const std::string lane = absl::StrCat(entries[i].transport_name, "/", entries[i].device_name);
    absl::StrAppend(&lanes, i == 0 ? "" : " ", lane);
  }
  return lanes;
}

bool UcxWorker::connected(int peer) const {
  return endpoints_[peer].handle != nullptr && !endpoints_[peer].broken;
}

void UcxWorker::Disconnect(int peer) { Close(endpoints_[peer]); }

absl::Status UcxAvailable() { return LoadedUcx().status; }

std::string UcxVersion() {
  return LoadedUcx().status.ok() ? LoadedUcx().ucp_get_version_string() : "";
}

}  // namespace ringzero
