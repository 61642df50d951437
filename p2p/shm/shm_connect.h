// ConnectShmEndpoint: shared memory for workers that one launcher did not fork, torchrun's say.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOfWorkers(seat));
//   RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint,
//                       ConnectShmEndpoint(seat, PeersOf(seat.self, hosts)));
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateShmTransport(std::move(endpoint), options));
//
// Each worker tells the abstract name of its socket at the rendezvous ("shm/3") and connects to
// those below it; the two prove to each other that they know the job's secret (docs/p2p.md). The
// sockets then are the endpoint's. A process of another user or of another job, or one that talks
// nonsense or nothing, is cut off and does no harm.
#ifndef RINGZERO_P2P_SHM_SHM_CONNECT_H_
#define RINGZERO_P2P_SHM_SHM_CONNECT_H_

#include <span>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/shm/shm_endpoint.h"

namespace ringzero {

// `peers`: the other workers of this host; each of them must call this with the same set (itself
// out, us in). Blocks until all are connected. DeadlineExceeded after seat.join_limit, naming who
// is missing, and who of them came and did not know the secret (it may be a stranger: the right one
// is awaited on); PermissionDenied, naming the worker below us that is of another job or user;
// Unavailable when one is gone; the error of seat.rendezvous->status(); ResourceExhausted when the
// system refuses.
absl::StatusOr<ShmEndpoint> ConnectShmEndpoint(const JobSeat& seat,
                                               std::span<const WorkerId> peers);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_CONNECT_H_
