// Chooses and makes a transport.
#include "p2p/connect.h"

#include <unistd.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "p2p/host_identity.h"
#include "p2p/shm_connect.h"
#include "p2p/ucx_transport.h"

namespace ringzero {
namespace {

std::string KeyOf(int worker) { return absl::StrCat("place/", worker); }

std::string HostName(const std::string& host) { return host.substr(0, host.find(' ')); }

absl::Status NotPossible(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("cyclic.transport: ", what));
}

absl::Status CheckBuilt(TransportChoice choice) {
  if (choice == TransportChoice::kUcx && UcxVersion().empty()) {
    return NotPossible("ucx is not built in (RINGZERO_WITH_UCX)");
  }
  if (choice == TransportChoice::kNccl) {
    return NotPossible("nccl is not built in (RINGZERO_WITH_NCCL)");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> MakeShm(const JobSeat& seat, ConnectRequest request) {
  if (request.take_endpoint) return CreateShmTransport(request.take_endpoint(), request.options);
  std::vector<WorkerId> peers;
  for (int w = 0; w < seat.workers; ++w) {
    if (w != seat.self.value) peers.push_back(WorkerId(w));
  }
  RZ_ASSIGN_OR_RETURN(ShmEndpoint endpoint, ConnectShmEndpoint(seat, peers));
  return CreateShmTransport(std::move(endpoint), request.options);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeUcx(const JobSeat& seat,
                                                   const TransportOptions& options) {
  // UCX's shared memory can make the wrong worker look silent: within a host a board tells.
  UcxOptions ucx;
  RZ_ASSIGN_OR_RETURN(const std::vector<WorkerId> peers, PeersOnThisHost(seat));
  if (!peers.empty()) {
    RZ_ASSIGN_OR_RETURN(const ShmEndpoint endpoint, ConnectShmEndpoint(seat, peers));
    ucx.board = endpoint.board;
  }
  return CreateUcxTransport(seat, options, ucx);
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
    case TransportChoice::kNccl:
      return ChosenTransport{asked,
                             absl::StrCat("nccl between all workers (asked for; ", where, ")")};
    case TransportChoice::kAuto:
      if (count == 1) {
        return ChosenTransport{TransportChoice::kShm, "shm between all workers (one host)"};
      }
      RZ_RETURN_IF_ERROR(
          Annotate(CheckBuilt(TransportChoice::kUcx), absl::StrCat("the workers are on ", where)));
      return ChosenTransport{TransportChoice::kUcx,
                             absl::StrCat("ucx between all workers (", where, ")")};
  }
  for (size_t w = 1; w < hosts.size(); ++w) {
    if (hosts[w] == hosts[0]) continue;
    return NotPossible(absl::StrCat("shm is for workers of one host, but worker ", w, " is on ",
                                    HostName(hosts[w]), " and worker 0 on ", HostName(hosts[0]),
                                    "; auto or ucx would do"));
  }
  return ChosenTransport{TransportChoice::kShm, "shm between all workers (asked for)"};
}

absl::StatusOr<std::string> ThisHost() {
  if (const char* given = std::getenv("RINGZERO_HOST"); given != nullptr && *given != '\0') {
    return given;
  }
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) name[0] = '?';
  RZ_ASSIGN_OR_RETURN(const std::string identity, HostIdentity());
  return absl::StrCat(name, " ", identity);
}

absl::StatusOr<std::vector<std::string>> HostsOfWorkers(const JobSeat& seat) {
  RZ_ASSIGN_OR_RETURN(const std::string mine, ThisHost());
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(KeyOf(seat.self.value), mine));
  std::vector<std::string> hosts;
  for (int w = 0; w < seat.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(std::string host, seat.rendezvous->Get(KeyOf(w), seat.join_limit));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::string WireVersions() {
  std::string versions;
  if (!UcxVersion().empty()) absl::StrAppend(&versions, "ucx = ", UcxVersion(), "\n");
  return versions;
}

absl::StatusOr<Connection> Connect(const JobSeat& seat, ConnectRequest request) {
  // The children of one launcher are where it is.
  std::vector<std::string> hosts(static_cast<size_t>(seat.workers), "here");
  if (!request.take_endpoint) {
    RZ_ASSIGN_OR_RETURN(hosts, HostsOfWorkers(seat));
  }
  RZ_ASSIGN_OR_RETURN(ChosenTransport chosen, ChooseTransport(request.transport, hosts));
  Connection made{.why = std::move(chosen.why)};
  if (chosen.transport == TransportChoice::kUcx) {
    RZ_ASSIGN_OR_RETURN(made.transport, MakeUcx(seat, request.options));
  } else {
    RZ_ASSIGN_OR_RETURN(made.transport, MakeShm(seat, std::move(request)));
  }
  return made;
}

}  // namespace ringzero
