// UcxTransport: workers that reach each other over UCX: shared memory, TCP, InfiniBand, GPU links.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, CreateUcxTransport(seat, options));
//   transport->LinkTo(WorkerId(1));      // "ucx posix/memory cma/memory"
//
// Blocks until all workers have said hello, at most seat.join_limit. Every hello proves that its
// sender knows the job's secret; UCX's own protocol below proves nothing, so its TCP is for a
// trusted network. docs/p2p.md has what UCX is told and why; UCX_… variables of the environment go
// first.
//
// Where some workers share a host and others do not (CreateMixedTransport), both ways are in one
// mailbox, with one memory: words go to the workers of this host, and what those have lent is sent
// on from where it lies.
//
// A transport must be destroyed on another thread than its message thread.
#ifndef RINGZERO_P2P_UCX_UCX_TRANSPORT_H_
#define RINGZERO_P2P_UCX_UCX_TRANSPORT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "p2p/arena.h"
#include "p2p/heartbeat.h"
#include "p2p/job/rendezvous.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/transport.h"

namespace ringzero {

// UCX's settings by their names without UCX_: {{"TLS", "tcp,self"}}.
using UcxSettings = std::vector<std::pair<std::string, std::string>>;

struct UcxOptions {
  // Signs of life of the workers of this host, if they share a page; silence of the others is
  // judged by their messages. UCX's shared memory has one queue per receiver, and an entry that a
  // stopped worker took and has not filled holds up all others: without a board the wrong worker
  // may be blamed there.
  std::shared_ptr<PulseBoard> board;
  // By worker, as in ShmEndpoint: connected with workers of this host, and closed when one dies,
  // which UCX's shared memory does not tell. May be empty; nothing is sent on them.
  std::vector<UniqueFd> sockets;
  // The workers of other hosts. They are reached over the network alone, those of this host also by
  // its memory; where there are none, UCX opens no port.
  std::vector<WorkerId> elsewhere;
  // The network interfaces that TCP uses and listens on (InterfacesToOtherHosts). Empty: all.
  std::vector<std::string> interfaces;
  // Where payload lies, of the kind that TransportOptions::memory asks for. Empty: in the host's.
  PayloadMemory memory;
  UcxSettings settings;  // before the environment's
};

// Unimplemented in a build without UCX. InvalidArgument for memory or settings that are not there.
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const JobSeat& seat,
                                                              const TransportOptions& options,
                                                              UcxOptions ucx = {});

// Shared memory to the workers of this host, who are in `endpoint`, UCX's network transports to all
// others. Of `ucx` interfaces and settings count. Each of the two ways has a message thread.
// Callbacks run on the thread of shared memory, of a worker that is alone on its host on UCX's, one
// at a time; the last ones in the destructor. Blocks and fails as CreateUcxTransport;
// InvalidArgument for memory other than the hosts'.
absl::StatusOr<std::unique_ptr<Transport>> CreateMixedTransport(const JobSeat& seat,
                                                                ShmEndpoint endpoint,
                                                                const TransportOptions& options,
                                                                const UcxOptions& ucx = {});

// OK, or why there is no UCX: Unimplemented in a build without it, FailedPrecondition where it
// cannot be loaded. Loads it.
absl::Status UcxAvailable();

// UCX's own version; "" if it is not available.
std::string UcxVersion();

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_TRANSPORT_H_
