// Which network interfaces lead to the workers of other hosts.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> names,
//                       InterfacesToOtherHosts(seat, hosts));      // {"eth1"}
//
// Each worker tells the address by which it reaches the job's TCPStore. Where the workers meet in a
// folder, or the store is reached by a loopback address, it tells all addresses of its interfaces.
// The interface to an address is the one that the system's routing table says; nothing is sent.
#ifndef RINGZERO_P2P_RENDEZVOUS_INTERFACES_H_
#define RINGZERO_P2P_RENDEZVOUS_INTERFACES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

// Sorted, each once; none if all workers share a host. `hosts`: of each worker (HostsOfWorkers). A
// worker that calls itself another host and has only addresses of ours is reached over loopback.
//
// All workers of the job must call it, once, with the same hosts: each tells its addresses
// (TellAll). Errors of TellAll. FailedPrecondition names a worker to whom no interface leads, unless
// UCX_NET_DEVICES names the interfaces anyway.
absl::StatusOr<std::vector<std::string>> InterfacesToOtherHosts(
    const JobSeat& seat, const std::vector<std::string>& hosts);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_INTERFACES_H_
