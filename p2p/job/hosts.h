// Which workers share a host, and so can share memory; and which network interfaces lead to the
// workers of other hosts.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOfWorkers(seat));
//   PeersOf(seat.self, hosts);   InterfacesToOtherHosts(seat, hosts);      // {"eth1"}
//
// A host is one boot of one kernel, one network namespace (where the Unix sockets by which workers
// meet have their names) and one user namespace (where uids mean the same): what looks like two
// hosts to a network is two hosts here, too.
#ifndef RINGZERO_P2P_JOB_HOSTS_H_
#define RINGZERO_P2P_JOB_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/job/rendezvous.h"

namespace ringzero {

// One line, equal for two processes if and only if they are on one host: its name, a space, and
// "boot 6f1c…, net:[4026531840], user:[4026531837]". RINGZERO_HOST in the environment replaces it.
// An error where /proc does not tell.
absl::StatusOr<std::string> ThisHost();

// ThisHost of each worker, told by TellAll.
absl::StatusOr<std::vector<std::string>> HostsOfWorkers(const JobSeat& seat);

// The other workers of `self`'s host, in order. Pure.
std::vector<WorkerId> PeersOf(WorkerId self, const std::vector<std::string>& hosts);

// Names of interfaces, sorted, each once; none if all workers share a host. `hosts`: the host of
// each worker (HostsOfWorkers), the same list at all workers. A worker that names another host, but
// has only addresses of this host, is reached over loopback.
//
// Each worker tells (TellAll) the address by which it reaches the job's TCPStore. If the workers
// meet in a folder, or the store is reached by a loopback address, it tells all addresses of its
// interfaces that are up, but for loopback and link-local ones. The system's routing table says
// which interface leads to an address; nothing is sent.
// FailedPrecondition names a worker to whom no interface leads, unless UCX_NET_DEVICES names the
// interfaces anyway.
absl::StatusOr<std::vector<std::string>> InterfacesToOtherHosts(
    const JobSeat& seat, const std::vector<std::string>& hosts);

}  // namespace ringzero

#endif  // RINGZERO_P2P_JOB_HOSTS_H_
