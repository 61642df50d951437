// ShmEndpoint: what connects one worker with the peers of its host.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints, MakeShmEndpoints(4));
//   ... fork; worker w takes endpoints[w], and every process closes the others ...
//
//   // Workers that one launcher did not fork, torchrun's say:
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOfWorkers(seat));
//   RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint,
//                       ConnectShmEndpoint(seat, PeersOf(seat.self, hosts)));
//
// Values; not thread-safe.
#ifndef RINGZERO_P2P_SHM_SHM_ENDPOINT_H_
#define RINGZERO_P2P_SHM_SHM_ENDPOINT_H_

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/unique_fd.h"
#include "p2p/heartbeat.h"
#include "p2p/job/rendezvous.h"
#include "p2p/shm/shm_rings.h"

namespace ringzero {

// One worker's end of the sockets. Every other copy must be closed (destroyed) in every process, or
// a death is not seen.
struct ShmEndpoint {
  WorkerId self;
  // By worker, connected SOCK_SEQPACKET. Empty: to itself, and to whoever is no peer of this host.
  std::vector<UniqueFd> sockets;
  std::shared_ptr<PulseBoard> board;  // of all workers, whoever of them is here
  std::shared_ptr<ShmRings> rings;    // of this host's workers, in order of their numbers
  // How long the others may take until their transports are made, too.
  std::chrono::milliseconds hello_limit = std::chrono::minutes(2);

  // This host's workers, in order: this one and those with a socket.
  std::vector<WorkerId> Members() const;
};

// Connected ends for all workers, to be made before the processes are forked. InvalidArgument below
// 1 worker, ResourceExhausted without descriptors.
absl::StatusOr<std::vector<ShmEndpoint>> MakeShmEndpoints(int workers);

// Endpoints of workers that were not forked together. Each worker tells the abstract name of its
// socket at the rendezvous ("shm/3") and connects to those below it; the two prove to each other
// that they know the job's secret (docs/p2p.md). The sockets then are the endpoint's. A process of
// another user or of another job, or one that talks nonsense or nothing, is cut off and does no
// harm.
//
// `peers`: the other workers of this host; each of them must call this with the same set (itself
// out, us in). Blocks until all are connected. DeadlineExceeded after seat.join_limit, naming who
// is missing, and who of them came and did not know the secret (it may be a stranger: the right one
// is awaited on); PermissionDenied, naming the worker below us that is of another job or user;
// Unavailable when one is gone; the error of seat.rendezvous->status(); ResourceExhausted when the
// system refuses.
absl::StatusOr<ShmEndpoint> ConnectShmEndpoint(const JobSeat& seat,
                                               std::span<const WorkerId> peers);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_ENDPOINT_H_
