// Reads /proc; asks the system for its interfaces and for the source address of a connected UDP
// socket.
#include "p2p/job/hosts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace ringzero {
namespace {

struct InterfaceAddress {
  std::string interface;
  std::string address;  // in numbers
  bool loopback = false;
};

std::string AddressInNumbers(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST] = {};
  const int failed = getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text : "";
}

using Addresses = std::vector<InterfaceAddress>;

// The addresses of the interfaces that are up. Link-local addresses (fe80::1%eth0), which mean
// something on one cable alone, are left out.
absl::StatusOr<Addresses> AddressesOfThisHost() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return Unavailable("the network interfaces cannot be listed: ", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  Addresses found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const bool v4 = each->ifa_addr->sa_family == AF_INET;
    if (!v4 && each->ifa_addr->sa_family != AF_INET6) continue;
    std::string address =
        AddressInNumbers(each->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (absl::StrContains(address, '%')) continue;
    const std::string name = each->ifa_name;
    found.push_back({name.substr(0, name.find(':')),  // "eth0:1" is an alias of eth0
                     std::move(address), (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

const InterfaceAddress* Find(const Addresses& own, const std::string& address) {
  const auto found = std::ranges::find(own, address, &InterfaceAddress::address);
  return found == own.end() ? nullptr : &*found;
}

// This host's address by which `host` is reached, "" if there is no way. `flags`: of getaddrinfo.
std::string SourceTo(const std::string& host, int flags) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = flags;
  addrinfo* first = nullptr;
  if (getaddrinfo(host.c_str(), "9", &wanted, &first) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    const UniqueFd probe(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage source = {};
    socklen_t bytes = sizeof(source);
    auto* address = reinterpret_cast<sockaddr*>(&source);
    // On a datagram socket connect sends nothing: it only looks up the route.
    if (!probe || connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    if (getsockname(probe.get(), address, &bytes) == 0) return AddressInNumbers(address, bytes);
  }
  return "";
}

// The addresses that this worker tells the others.
std::vector<std::string> AddressesToTell(const Addresses& own, const std::string& store_host) {
  const std::string source = store_host.empty() ? "" : SourceTo(store_host, 0);
  const InterfaceAddress* leading = Find(own, source);
  if (leading != nullptr && !leading->loopback) return {source};
  std::vector<std::string> all;
  for (const InterfaceAddress& each : own) {
    if (!each.loopback) all.push_back(each.address);
  }
  return all;
}

// The interfaces by which the worker with the addresses `theirs` is reached.
std::set<std::string> InterfacesTo(const Addresses& own, const std::vector<std::string>& theirs) {
  std::set<std::string> names;
  bool is_here = true;
  for (const std::string& each : theirs) {
    if (Find(own, each) != nullptr) continue;  // say, of a bridge that every host has
    is_here = false;
    const InterfaceAddress* leading = Find(own, SourceTo(each, AI_NUMERICHOST));
    if (leading != nullptr) names.insert(leading->interface);
  }
  for (const InterfaceAddress& each : own) {
    if (is_here && each.loopback) names.insert(each.interface);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::string> ThisHost() {
  if (const char* given = std::getenv("RINGZERO_HOST"); given != nullptr && *given != '\0') {
    return given;
  }
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) name[0] = '?';
  RZ_ASSIGN_OR_RETURN(const std::string boot, ReadWholeFile("/proc/sys/kernel/random/boot_id"));
  std::string host = absl::StrCat(name, " boot ", absl::StripAsciiWhitespace(boot));
  for (const char* kind : {"net", "user"}) {
    std::error_code error;
    const auto space = std::filesystem::read_symlink(absl::StrCat("/proc/self/ns/", kind), error);
    if (error) {
      return Unavailable("cannot tell this host from others: /proc/self/ns/", kind, ": ",
                         error.message());
    }
    absl::StrAppend(&host, ", ", space.string());
  }
  return host;
}

absl::StatusOr<std::vector<std::string>> HostsOfWorkers(const JobSeat& seat) {
  RZ_ASSIGN_OR_RETURN(const std::string mine, ThisHost());
  return TellAll(seat, "host", mine, "has not told its host");
}

std::vector<WorkerId> PeersOf(WorkerId self, const std::vector<std::string>& hosts) {
  std::vector<WorkerId> peers;
  for (size_t w = 0; w < hosts.size(); ++w) {
    const WorkerId worker(static_cast<int>(w));
    if (worker != self && hosts[w] == hosts[static_cast<size_t>(self.value)]) {
      peers.push_back(worker);
    }
  }
  return peers;
}

absl::StatusOr<std::vector<std::string>> InterfacesToOtherHosts(
    const JobSeat& seat, const std::vector<std::string>& hosts) {
  if (std::set<std::string>(hosts.begin(), hosts.end()).size() == 1) {
    return std::vector<std::string>();
  }
  RZ_ASSIGN_OR_RETURN(const Addresses own, AddressesOfThisHost());
  const std::string mine = absl::StrJoin(AddressesToTell(own, seat.store_host), " ");
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> told,
                      TellAll(seat, "addresses", mine, "has not told its addresses"));
  std::set<std::string> names;
  for (int w = 0; w < seat.workers; ++w) {
    if (hosts[w] == hosts[seat.self.value]) continue;
    const std::set<std::string> leading =
        InterfacesTo(own, absl::StrSplit(told[w], ' ', absl::SkipEmpty()));
    if (leading.empty() && std::getenv("UCX_NET_DEVICES") == nullptr) {
      return FailedPrecondition("no network interface leads to worker ", w, " (", told[w],
                                "); UCX_NET_DEVICES can name the interfaces");
    }
    names.insert(leading.begin(), leading.end());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace ringzero
