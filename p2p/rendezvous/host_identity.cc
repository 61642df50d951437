// Reads /proc, and compares at the rendezvous.
#include "p2p/rendezvous/host_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "p2p/rendezvous/tell_all.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

absl::Status CannotTell(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot tell this host from others: ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> BootId() {
  const std::string path = "/proc/sys/kernel/random/boot_id";
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text;
  const ssize_t got = file ? read(file.get(), text.data(), text.size()) : -1;
  if (got <= 0) return CannotTell(path);
  const std::string line(text.data(), static_cast<size_t>(got));
  return std::string(absl::StripSuffix(line, "\n"));
}

absl::StatusOr<std::string> Namespace(const std::string& kind) {
  const std::string path = "/proc/self/ns/" + kind;
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) return CannotTell(path);
  return absl::StrCat(facts.st_dev, ":", facts.st_ino);
}

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

}  // namespace ringzero
