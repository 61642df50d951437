// Chooses and makes a transport.
#include "p2p/connect.h"

#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/job/hosts.h"
#include "p2p/shm/shm_transport.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {
namespace {

std::string HostName(const std::string& host) { return host.substr(0, host.find(' ')); }

absl::Status NotPossible(absl::string_view what) {
  return InvalidArgument("cyclic.transport: ", what);
}

absl::Status CheckUcx() {
  const absl::Status available = UcxAvailable();
  if (available.ok()) return absl::OkStatus();
  const bool built = available.code() != absl::StatusCode::kUnimplemented;
  return NotPossible(built ? available.message() : "ucx is not built in (RINGZERO_WITH_UCX)");
}

absl::Status CheckMemory(TransportChoice choice, MemoryKind memory) {
  if (choice == TransportChoice::kNccl && memory == MemoryKind::kHost) {
    return NotPossible(
        "nccl moves the memory of GPUs, and what travels here lies in the hosts' memory; auto, shm "
        "or ucx would do");
  }
  if (choice == TransportChoice::kShm && memory == MemoryKind::kCuda) {
    return NotPossible(
        "shm moves the hosts' memory, and what travels here lies in that of GPUs; auto, ucx or "
        "nccl would do");
  }
  return absl::OkStatus();
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
    absl::StatusOr<std::string> link = seat.rendezvous->Get(key(w), deadline.Look());
    while (!link.ok()) {
      // Ends with the transport: who died there puts nothing any more.
      while (transport.Poll()) {  // nothing to do where a thread of its own does it
      }
      RZ_RETURN_IF_ERROR(transport.status());
      if (!absl::IsDeadlineExceeded(link.status()) || deadline.over()) break;
      link = seat.rendezvous->Get(key(w), deadline.Look());
    }
    if (!link.ok()) {
      return WhileWaiting(link.status(), absl::StrCat("waiting for worker ", w, "'s link"));
    }
    ++links[*link];
  }
  std::vector<std::string> words;
  for (const auto& [link, count] : links) words.push_back(absl::StrCat(count, " x ", link));
  return absl::StrJoin(words, ", ");
}

absl::StatusOr<std::unique_ptr<Transport>> Make(TransportChoice choice, const JobSeat& seat,
                                                ShmEndpoint endpoint, UcxOptions ucx,
                                                const ConnectRequest& request) {
  if (choice == TransportChoice::kShm) {
    return CreateShmTransport(std::move(endpoint), request.options);
  }
  if (choice == TransportChoice::kAuto) {
    return CreateMixedTransport(seat, std::move(endpoint), request.options, ucx);
  }
  // The host's page of pulses tells who is stopped and its sockets who is dead, whatever UCX says.
  ucx.board = std::move(endpoint.board);
  ucx.sockets = std::move(endpoint.sockets);
  if (request.options.memory == MemoryKind::kCuda) {
    RZ_ASSIGN_OR_RETURN(ucx.memory, MakeCudaMemory(request.gpu.device, CudaPlace::kDevice));
  }
  return CreateUcxTransport(seat, request.options, std::move(ucx));
}

absl::StatusOr<Connection> ConnectAll(const JobSeat& seat, const ConnectRequest& request) {
  std::vector<std::string> hosts = seat.hosts;
  if (hosts.empty()) hosts.assign(static_cast<size_t>(seat.workers), "here");
  RZ_CHECK(static_cast<int>(hosts.size()) == seat.workers, "JobSeat::hosts");
  RZ_ASSIGN_OR_RETURN(ChosenTransport chosen,
                      ChooseTransport(request.transport, hosts, request.options.memory));
  ShmEndpoint endpoint;
  if (request.take_endpoint) {
    endpoint = request.take_endpoint();
  } else {
    RZ_ASSIGN_OR_RETURN(endpoint, ConnectShmEndpoint(seat, PeersOf(seat.self, hosts)));
  }
  UcxOptions ucx;
  RZ_ASSIGN_OR_RETURN(ucx.interfaces, InterfacesToOtherHosts(seat, hosts));
  for (int w = 0; w < seat.workers; ++w) {
    if (hosts[w] != hosts[seat.self.value]) ucx.elsewhere.emplace_back(w);
  }
  Connection made{.why = std::move(chosen.why)};
  if (chosen.transport == TransportChoice::kNccl) {
    RZ_ASSIGN_OR_RETURN(const ChosenTransport words,
                        ChooseTransport(TransportChoice::kAuto, hosts));
    NcclParts parts = {.news = std::make_shared<LaneNews>(), .gpu = request.gpu};
    RZ_ASSIGN_OR_RETURN(parts.words,
                        Make(words.transport, seat, std::move(endpoint), std::move(ucx),
                             {.options = LaneWordsOptions(request.options, parts.news)}));
    RZ_ASSIGN_OR_RETURN(made.transport,
                        CreateNcclTransport(seat, std::move(parts), request.options));
  } else {
    RZ_ASSIGN_OR_RETURN(made.transport,
                        Make(chosen.transport, seat, std::move(endpoint), std::move(ucx), request));
  }
  if (chosen.transport == TransportChoice::kShm) return made;  // there is one way only
  RZ_ASSIGN_OR_RETURN(const std::string links, LinksToTheRight(seat, *made.transport));
  absl::StrAppend(&made.why, "; to the right neighbours: ", links);
  if (const char* tls = std::getenv("UCX_TLS"); tls != nullptr) {
    absl::StrAppend(&made.why, "; UCX_TLS=", tls,
                    " was given: UCX's TCP, if it allows that, is for a trusted network only");
  }
  return made;
}

}  // namespace

absl::StatusOr<ChosenTransport> ChooseTransport(TransportChoice asked,
                                                const std::vector<std::string>& hosts,
                                                MemoryKind memory) {
  const size_t count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  const std::string where = count == 1 ? "one host" : absl::StrCat(count, " hosts");
  RZ_RETURN_IF_ERROR(CheckMemory(asked, memory));
  const auto ucx = [](const std::string& why) {
    return ChosenTransport{TransportChoice::kUcx,
                           absl::StrCat("ucx between all workers (", why, ")")};
  };
  switch (asked) {
    case TransportChoice::kShm: break;
    case TransportChoice::kUcx: RZ_RETURN_IF_ERROR(CheckUcx()); return ucx("asked for; " + where);
    case TransportChoice::kNccl:
      return ChosenTransport{asked,
                             absl::StrCat("nccl between all workers (asked for; ", where, ")")};
    case TransportChoice::kAuto:
    case TransportChoice::kLocal:
      if (memory == MemoryKind::kCuda) {
        RZ_RETURN_IF_ERROR(Annotate(CheckUcx(), "payload in the memory of GPUs"));
        return ucx("payload in the memory of GPUs; " + where);
      }
      if (count == 1) {
        return ChosenTransport{TransportChoice::kShm, "shm between all workers (one host)"};
      }
      RZ_RETURN_IF_ERROR(Annotate(CheckUcx(), absl::StrCat("the workers are on ", where)));
      if (count == hosts.size()) return ucx(where);
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

std::vector<int> CountByHost(const std::vector<std::string>& hosts, int workers) {
  if (hosts.empty()) return {workers};
  std::vector<int> counts;
  for (size_t w = 0; w < hosts.size(); ++w) {
    if (w == 0 || hosts[w] != hosts[w - 1]) counts.push_back(0);
    ++counts.back();
  }
  return counts;
}

absl::StatusOr<std::vector<int>> WorkersThatShare(TransportChoice asked,
                                                  std::vector<std::string> hosts, int workers) {
  if (hosts.empty()) hosts.assign(static_cast<size_t>(workers), "here");
  RZ_ASSIGN_OR_RETURN(const ChosenTransport chosen, ChooseTransport(asked, hosts));
  const bool share =
      chosen.transport == TransportChoice::kShm || chosen.transport == TransportChoice::kAuto;
  return share ? CountByHost(hosts, workers) : std::vector<int>();
}

std::string WireVersions() { return absl::StrCat("ucx = ", UcxVersion(), "\n"); }

absl::StatusOr<Connection> Connect(const JobSeat& seat, const ConnectRequest& request) {
  absl::StatusOr<Connection> made = ConnectAll(seat, request);
  seat.rendezvous->Leave(made.status());
  return made;
}

}  // namespace ringzero
