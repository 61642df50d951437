// ShmTransport: workers are processes of one host; a hop hands over a token and copies nothing.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints, MakeShmEndpoints(4));
//   ... fork; in worker w's process (LaunchProcesses does this):
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
//                       CreateShmTransport(std::move(endpoints[w]), options));
//
// Every worker owns two memory files (parameters, sums), which the others map. docs/p2p.md has how
// words travel, and how a worker's death or stop is noticed.
//
// Workers that nobody forked together get their endpoints from ConnectShmEndpoint
// (p2p/shm/shm_connect.h). All endpoints may also live in one process (tests do that). A transport
// must be destroyed on another thread than its message thread.
#ifndef RINGZERO_P2P_SHM_SHM_TRANSPORT_H_
#define RINGZERO_P2P_SHM_SHM_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/transport.h"

namespace ringzero {

// Does not wait for the others: messages go out once their receiver has said hello. A worker that
// has not done so within hello_limit ends the transport with DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Transport>> CreateShmTransport(ShmEndpoint endpoint,
                                                              const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_TRANSPORT_H_
