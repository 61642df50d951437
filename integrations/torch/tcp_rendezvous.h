// LibTorch's c10d TCPStore as the place where workers meet: what torchrun offers, and what worker 0
// can serve itself.
//
//   RZ_ASSIGN_OR_RETURN(JobSeat seat, JoinJob(identity, {.open_tcp = OpenTcpStore}));
//
// Anybody who can reach the port can read and write there: use it on a network of your own, or give
// the job a secret (RINGZERO_JOB_SECRET).
#ifndef RINGZERO_INTEGRATIONS_TORCH_TCP_RENDEZVOUS_H_
#define RINGZERO_INTEGRATIONS_TORCH_TCP_RENDEZVOUS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "p2p/job/join_job.h"
#include "p2p/job/store_rendezvous.h"

namespace ringzero {

// Quietens torch's own log unless TORCH_CPP_LOG_LEVEL is set. Waits for the server, up to the
// place's limit. Unavailable if no server comes, or the port is taken; every call of the store is
// Unavailable if no answer comes in time. If worker 0 serves, these errors name worker 0.
absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenTcpStore(const TcpPlace& place);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_TCP_RENDEZVOUS_H_
