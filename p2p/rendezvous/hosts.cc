// Reads /proc; asks the system for its interfaces and for the source address of a connected UDP
// socket.
#include "p2p/rendezvous/hosts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

absl::Status CannotTell(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot tell this host from others: ", why));
}

absl::StatusOr<std::string> BootId() {
  const auto text = ReadWholeFile("/proc/sys/kernel/random/boot_id");
  if (!text.ok()) return CannotTell(text.status().message());
  return std::string(absl::StripAsciiWhitespace(*text));
}

absl::StatusOr<std::string> Namespace(const std::string& kind) {
  const std::string path = "/proc/self/ns/" + kind;
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) {
    return CannotTell(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return absl::StrCat(facts.st_dev, ":", facts.st_ino);
}

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

// Of the interfaces that are up. Addresses that mean something on one cable alone (fe80::…) are
// left out.
absl::StatusOr<std::vector<InterfaceAddress>> AddressesOfThisHost() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return absl::UnavailableError(
        absl::StrCat("the network interfaces cannot be listed: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr)) {
      continue;
    }
    const std::string name = each->ifa_name;
    found.push_back({name.substr(0, name.find(':')),  // "eth0:1" is an alias of eth0
                     AddressInNumbers(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in)
                                                                        : sizeof(sockaddr_in6)),
                     (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
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
    // Of a datagram socket this only looks for the way.
    if (!probe || connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    if (getsockname(probe.get(), address, &bytes) == 0) return AddressInNumbers(address, bytes);
  }
  return "";
}

class Interfaces {
 public:
  explicit Interfaces(std::vector<InterfaceAddress> addresses) : own_(std::move(addresses)) {}

  // What this worker tells the others.
  std::vector<std::string> Told(const std::string& store_host) const {
    const std::string source = store_host.empty() ? "" : SourceTo(store_host, 0);
    const InterfaceAddress* leading = Find(source);
    if (leading != nullptr && !leading->loopback) return {source};
    std::vector<std::string> all;
    for (const InterfaceAddress& each : own_) {
      if (!each.loopback) all.push_back(each.address);
    }
    return all;
  }

  // By which the worker with these addresses is reached.
  std::set<std::string> To(const std::vector<std::string>& theirs) const {
    std::set<std::string> names;
    bool is_here = true;
    for (const std::string& each : theirs) {
      if (Find(each) != nullptr) continue;  // of a bridge that every host has, say
      is_here = false;
      const InterfaceAddress* leading = Find(SourceTo(each, AI_NUMERICHOST));
      if (leading != nullptr) names.insert(leading->interface);
    }
    for (const InterfaceAddress& each : own_) {
      if (is_here && each.loopback) names.insert(each.interface);
    }
    return names;
  }

 private:
  const InterfaceAddress* Find(const std::string& address) const {
    const auto found = std::find_if(own_.begin(), own_.end(), [&](const InterfaceAddress& each) {
      return each.address == address;
    });
    return found == own_.end() ? nullptr : &*found;
  }

  const std::vector<InterfaceAddress> own_;
};

}  // namespace

absl::StatusOr<std::string> HostIdentity() {
  RZ_ASSIGN_OR_RETURN(const std::string boot, BootId());
  RZ_ASSIGN_OR_RETURN(const std::string network, Namespace("net"));
  RZ_ASSIGN_OR_RETURN(const std::string users, Namespace("user"));
  return absl::StrCat("boot ", boot, ", network ", network, ", users ", users);
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
  if (std::set<std::string>(hosts.begin(), hosts.end()).size() == 1)
    return std::vector<std::string>();
  RZ_ASSIGN_OR_RETURN(std::vector<InterfaceAddress> own, AddressesOfThisHost());
  const Interfaces here(std::move(own));
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> told,
                      TellAll(seat, "addresses", absl::StrJoin(here.Told(seat.store_host), " "),
                              "has not told its addresses"));
  std::set<std::string> names;
  for (int w = 0; w < seat.workers; ++w) {
    if (hosts[w] == hosts[seat.self.value]) continue;
    const std::set<std::string> leading = here.To(absl::StrSplit(told[w], ' ', absl::SkipEmpty()));
    if (leading.empty() && std::getenv("UCX_NET_DEVICES") == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("no network interface leads to worker ", w, " (", told[w],
                       "); UCX_NET_DEVICES can name the interfaces"));
    }
    names.insert(leading.begin(), leading.end());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace ringzero
