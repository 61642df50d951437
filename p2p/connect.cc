// Chooses and makes a transport.
#include "p2p/connect.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/mixed_transport.h"
#include "p2p/shm/shm_connect.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {
namespace {

std::string HostName(const std::string& host) { return host.substr(0, host.find(' ')); }

absl::Status NotPossible(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("cyclic.transport: ", what));
}

absl::Status CheckBuilt(TransportChoice choice) {
  if (choice == TransportChoice::kUcx && UcxVersion().empty()) {
    return NotPossible("ucx is not built in (RINGZERO_WITH_UCX)");
  }
  if (choice == TransportChoice::kNccl) {
    return NotPossible(
        "nccl moves the memory of GPUs, and training keeps what travels in the hosts' memory; "
        "auto, shm or ucx would do");
  }
  return absl::OkStatus();
}

constexpr std::chrono::milliseconds kLookInterval(100);

// Waits at the rendezvous, and ends with the transport: who died there puts nothing any more.
absl::StatusOr<std::string> GetWhileUp(const JobSeat& seat, const std::string& key,
                                       const Deadline& deadline, Transport& transport) {
  while (true) {
    const auto left = deadline.Left();
    absl::StatusOr<std::string> value = seat.rendezvous->Get(key, std::min(left, kLookInterval));
    if (value.ok()) return value;
    while (transport.Poll()) {  // nothing to do where a thread of its own does it
    }
    RZ_RETURN_IF_ERROR(transport.status());
    if (value.status().code() != absl::StatusCode::kDeadlineExceeded || left <= kLookInterval) {
      return value;
    }
  }
}

// What really carries messages to the right neighbours, told at the rendezvous: "2 x ucx tcp/eth0".
// For worker 0; the others only tell.
absl::StatusOr<std::string> LinksToTheRight(const JobSeat& seat, Transport& transport) {
  const auto key = [](int worker) { return absl::StrCat("link/", worker); };
  const WorkerId right((seat.self.value + 1) % seat.workers);
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(key(seat.self.value), transport.LinkTo(right)));
  if (seat.self.value != 0) return std::string();
  const Deadline deadline(seat.join_limit);
  std::map<std::string, int> links;
  for (int w = 0; w < seat.workers; ++w) {
    absl::StatusOr<std::string> link = GetWhileUp(seat, key(w), deadline, transport);
    if (!link.ok()) {
      return Annotate(link.status(), absl::StrCat("waiting for worker ", w, "'s link"));
    }
    ++links[*link];
  }
  std::vector<std::string> words;
  for (const auto& [link, count] : links) words.push_back(absl::StrCat(count, " x ", link));
  return absl::StrJoin(words, ", ");
}

absl::StatusOr<std::unique_ptr<Transport>> Make(TransportChoice choice, const JobSeat& seat,
                                                ShmEndpoint endpoint,
                                                const TransportOptions& options) {
  switch (choice) {
    case TransportChoice::kShm: return CreateShmTransport(std::move(endpoint), options);
    // The host's page of pulses tells who is stopped and its sockets who is dead, whatever UCX
    // says.
    case TransportChoice::kUcx:
      return CreateUcxTransport(
          seat, options,
          {.board = std::move(endpoint.board), .sockets = std::move(endpoint.sockets)});
    case TransportChoice::kAuto: return CreateMixedTransport(seat, std::move(endpoint), options);
    case TransportChoice::kNccl: break;
  }
  return CheckBuilt(choice);
}

}  // namespace

absl::StatusOr<ChosenTransport> ChooseTransport(TransportChoice asked,
                                                const std::vector<std::string>& hosts) {
  const size_t count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  const std::string where = count == 1 ? "one host" : absl::StrCat(count, " hosts");
  RZ_RETURN_IF_ERROR(CheckBuilt(asked));
  switch (asked) {
    case TransportChoice::kShm: break;
    case TransportChoice::kUcx:
      return ChosenTransport{asked,
                             absl::StrCat("ucx between all workers (asked for; ", where, ")")};
    case TransportChoice::kNccl: break;  // CheckBuilt has refused it
    case TransportChoice::kAuto:
      if (count == 1) {
        return ChosenTransport{TransportChoice::kShm, "shm between all workers (one host)"};
      }
      RZ_RETURN_IF_ERROR(
          Annotate(CheckBuilt(TransportChoice::kUcx), absl::StrCat("the workers are on ", where)));
      if (count == hosts.size()) {
        return ChosenTransport{TransportChoice::kUcx,
                               absl::StrCat("ucx between all workers (", where, ")")};
      }
      return ChosenTransport{TransportChoice::kAuto,
                             absl::StrCat("shm within a host, ucx between hosts (", where, ")")};
  }
  for (size_t w = 1; w < hosts.size(); ++w) {
    if (hosts[w] == hosts[0]) continue;
    return NotPossible(absl::StrCat("shm is for workers of one host, but worker ", w, " is on ",
                                    HostName(hosts[w]), " and worker 0 on ", HostName(hosts[0]),
                                    "; auto or ucx would do"));
  }
  return ChosenTransport{TransportChoice::kShm, "shm between all workers (asked for)"};
}

std::string WireVersions() {
  std::string versions;
  absl::StrAppend(&versions, "ucx = ", UcxVersion(), "\n");
  return versions;
}

absl::StatusOr<Connection> Connect(const JobSeat& seat, const ConnectRequest& request) {
  // The children of one launcher are where it is.
  std::vector<std::string> hosts(static_cast<size_t>(seat.workers), "here");
  if (!request.take_endpoint) {
    RZ_ASSIGN_OR_RETURN(hosts, HostsOfWorkers(seat));
  }
  RZ_ASSIGN_OR_RETURN(ChosenTransport chosen, ChooseTransport(request.transport, hosts));
  ShmEndpoint endpoint;
  if (request.take_endpoint) {
    endpoint = request.take_endpoint();
  } else {
    RZ_ASSIGN_OR_RETURN(endpoint, ConnectShmEndpoint(seat, PeersOf(seat.self, hosts)));
  }
  Connection made{.why = std::move(chosen.why)};
  RZ_ASSIGN_OR_RETURN(made.transport,
                      Make(chosen.transport, seat, std::move(endpoint), request.options));
  if (chosen.transport == TransportChoice::kShm) return made;  // there is one way only
  RZ_ASSIGN_OR_RETURN(const std::string links, LinksToTheRight(seat, *made.transport));
  absl::StrAppend(&made.why, "; to the right neighbours: ", links);
  return made;
}

}  // namespace ringzero
