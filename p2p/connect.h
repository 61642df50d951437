// Connect: the transport that a configuration asks for, between workers that have met.
//
//   RZ_ASSIGN_OR_RETURN(Connection made, Connect(seat, {.transport = TransportChoice::kAuto,
//                                                       .options = needs}));
//   made.transport;   made.why;   // "shm between all workers (one host)"
//
// What was asked for and is not possible is an error with the reason; nothing is replaced silently.
#ifndef RINGZERO_P2P_CONNECT_H_
#define RINGZERO_P2P_CONNECT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/nccl_transport.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/transport.h"

namespace ringzero {

// kLocal: threads of one process, which need no Connect; here as kAuto.
enum class TransportChoice { kAuto, kLocal, kShm, kUcx, kNccl };

// kAuto decided; pure. `hosts`: the host of each worker.
struct ChosenTransport {
  // kAuto: by pair, shm within a host and ucx between hosts (p2p/ucx/ucx_transport.h).
  TransportChoice transport = TransportChoice::kShm;
  std::string why;  // in words, with what was chosen
};
// InvalidArgument: shm between hosts or for GPUs' memory, nccl for the hosts' memory, or what this
// program was built without.
absl::StatusOr<ChosenTransport> ChooseTransport(TransportChoice asked,
                                                const std::vector<std::string>& hosts,
                                                MemoryKind memory = MemoryKind::kHost);

// How many workers each host has, in order: {4, 4}. `hosts`: as in JobSeat; workers of a host that
// are no neighbours count as of two hosts.
std::vector<int> CountByHost(const std::vector<std::string>& hosts, int workers);

// How many neighbouring workers may lend each other memory, host by host (PlanRequest::hosts):
// {4, 4}, as CountByHost. Empty: what is chosen lets none do so. Errors of ChooseTransport.
absl::StatusOr<std::vector<int>> WorkersThatShare(TransportChoice asked,
                                                  std::vector<std::string> hosts, int workers);

// "name = value" lines about what must be alike for workers to understand each other.
std::string WireVersions();

struct ConnectRequest {
  TransportChoice transport = TransportChoice::kAuto;
  TransportOptions options;
  GpuNeeds gpu;  // where options.memory is kCuda
  // For the children of one launcher: its endpoint; else the workers of a host connect by
  // themselves.
  std::function<ShmEndpoint()> take_endpoint;
};

struct Connection {
  std::unique_ptr<Transport> transport;
  std::string why;  // at worker 0 also what UCX really took: "…: 4 x ucx posix/memory cma/memory"
};

// All workers of the job must call this. Errors of ChooseTransport and of the transports; until all
// are connected those of seat.rendezvous->status(). Leaves the rendezvous with what it returns.
absl::StatusOr<Connection> Connect(const JobSeat& seat, const ConnectRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_P2P_CONNECT_H_
