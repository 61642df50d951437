// MixedTransport: shared memory to the workers of this host, UCX to all others, in one mailbox.
//
//   RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint, ConnectShmEndpoint(seat, peers_here));
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
//                       CreateMixedTransport(seat, std::move(endpoint), options));
//   transport->LinkTo(WorkerId(1));   // "shm", or "ucx tcp/eth0"
//
// There is one memory (docs/p2p.md): what a peer of this host hands over is sent on from where it
// lies. Each of the two ways has a message thread. Callbacks run on the thread of shared memory, of
// a worker that is alone on its host on UCX's, one at a time; the last ones in the destructor.
#ifndef RINGZERO_P2P_MIXED_TRANSPORT_H_
#define RINGZERO_P2P_MIXED_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/transport.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {

// `endpoint`: of the peers of this host; who is not in it is reached over UCX's network transports.
// Of `ucx` interfaces and settings count. Blocks and fails as CreateUcxTransport; InvalidArgument
// for memory other than the hosts'.
absl::StatusOr<std::unique_ptr<Transport>> CreateMixedTransport(const JobSeat& seat,
                                                                ShmEndpoint endpoint,
                                                                const TransportOptions& options,
                                                                const UcxOptions& ucx = {});

}  // namespace ringzero

#endif  // RINGZERO_P2P_MIXED_TRANSPORT_H_
