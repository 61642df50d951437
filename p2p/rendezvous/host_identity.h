// Which workers share a host, and so can share memory.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOfWorkers(seat));
//   RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint,
//                       ConnectShmEndpoint(seat, PeersOf(seat.self, hosts)));
//
// A host is one boot of one kernel, one network namespace (where the Unix sockets by which workers
// meet have their names) and one user namespace (where uids mean the same): what looks like two
// hosts to a network is two hosts here, too.
#ifndef RINGZERO_P2P_RENDEZVOUS_HOST_IDENTITY_H_
#define RINGZERO_P2P_RENDEZVOUS_HOST_IDENTITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

// One line, equal for two processes if and only if they are on one host: "boot 6f1c…, network
// 4:4026531840, users 4:4026531837". Unavailable where /proc does not tell.
absl::StatusOr<std::string> HostIdentity();

// This host's name, a space, and its identity. RINGZERO_HOST in the environment stands for both.
absl::StatusOr<std::string> ThisHost();

// ThisHost of each worker. All workers of the job must call it, once: each tells its host at the
// rendezvous ("host/3") and waits for what the others tell, at most seat.join_limit for all.
// DeadlineExceeded names the first worker that is missing.
absl::StatusOr<std::vector<std::string>> HostsOfWorkers(const JobSeat& seat);

// The other workers of `self`'s host, in order. Pure.
std::vector<WorkerId> PeersOf(WorkerId self, const std::vector<std::string>& hosts);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_HOST_IDENTITY_H_
