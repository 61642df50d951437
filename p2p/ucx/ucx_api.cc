// Loads UCX and looks its functions up.
#include "p2p/ucx/ucx_api.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

// From where it was when this was built, else from where the loader looks.
void* Open(const char* name) {
  const std::string built = absl::StrCat(RINGZERO_UCX_LIBRARY_FOLDER, "/", name);
  if (void* library = dlopen(built.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return FailedPrecondition("transport ucx: this UCX has no function ", name, "; 1.17 would do");
}

absl::Status Load(UcxApi& api) {
  void* ucp = Open("libucp.so.0");
  void* ucs = ucp == nullptr ? nullptr : Open("libucs.so.0");
  if (ucs == nullptr) {
    const char* why = dlerror();
    return FailedPrecondition("transport ucx: UCX cannot be loaded (pip install libucx-cu13): ",
                              why == nullptr ? "" : why);
  }
#define RZ_FIND_UCP(name) RZ_RETURN_IF_ERROR(Find(ucp, #name, api.name));
  RZ_UCP_FUNCTIONS(RZ_FIND_UCP)
#undef RZ_FIND_UCP
#define RZ_FIND_UCS(name) RZ_RETURN_IF_ERROR(Find(ucs, #name, api.name));
  RZ_UCS_FUNCTIONS(RZ_FIND_UCS)
#undef RZ_FIND_UCS
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

}  // namespace

const UcxApi& LoadedUcx() {
  static const UcxApi& loaded = *[] {
    auto* api = new UcxApi;
    api->status = Load(*api);
    return api;
  }();
  return loaded;
}

}  // namespace ringzero
