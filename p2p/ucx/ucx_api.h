// UcxApi: the functions of UCX that the worker calls, found when first asked for.
//
//   RZ_RETURN_IF_ERROR(LoadedUcx().status);
//   ucs_status_t status = LoadedUcx().ucp_worker_create(…);
//
// For p2p/ucx/ucx_*.cc alone: it includes UCX's own headers. Loaded once per process and never
// unloaded. Thread-safe.
#ifndef RINGZERO_P2P_UCX_UCX_API_H_
#define RINGZERO_P2P_UCX_UCX_API_H_

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "absl/status/status.h"

namespace ringzero {

// clang-format off
#define RZ_UCP_FUNCTIONS(F)                                                                     \
  F(ucp_get_version_string)                                                                     \
  F(ucp_config_read) F(ucp_config_modify) F(ucp_config_release)                                 \
  F(ucp_init_version) F(ucp_cleanup) F(ucp_context_query)                                       \
  F(ucp_worker_create) F(ucp_worker_destroy) F(ucp_worker_query) F(ucp_worker_release_address)  \
  F(ucp_worker_set_am_recv_handler)                                                             \
  F(ucp_worker_get_efd) F(ucp_worker_arm) F(ucp_worker_progress)                                \
  F(ucp_ep_create) F(ucp_ep_close_nbx) F(ucp_ep_query)                                          \
  F(ucp_mem_map) F(ucp_mem_unmap) F(ucp_mem_query)                                              \
  F(ucp_am_send_nbx) F(ucp_am_recv_data_nbx) F(ucp_am_data_release)                             \
  F(ucp_request_check_status) F(ucp_request_free)
// clang-format on
#define RZ_UCS_FUNCTIONS(F) \
  F(ucs_status_string) F(ucs_debug_disable_signal) F(ucs_global_opts_set_value)

struct UcxApi {
#define RZ_DECLARE(name) decltype(&::name) name = nullptr;
  RZ_UCP_FUNCTIONS(RZ_DECLARE)
  RZ_UCS_FUNCTIONS(RZ_DECLARE)
#undef RZ_DECLARE
  absl::Status status;  // of the loading; the functions are there only if it is OK
};
const UcxApi& LoadedUcx();

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_API_H_
