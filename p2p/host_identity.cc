// Reads /proc, and compares at the rendezvous.
#include "p2p/host_identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

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

std::string HostKey(int worker) { return absl::StrCat("host/", worker); }

}  // namespace

absl::StatusOr<std::string> HostIdentity() {
  RZ_ASSIGN_OR_RETURN(const std::string boot, BootId());
  RZ_ASSIGN_OR_RETURN(const std::string network, Namespace("net"));
  RZ_ASSIGN_OR_RETURN(const std::string users, Namespace("user"));
  return absl::StrCat("boot ", boot, ", network ", network, ", users ", users);
}

absl::StatusOr<std::vector<WorkerId>> PeersOnThisHost(const JobSeat& seat) {
  const Clock::time_point deadline = Clock::now() + seat.join_limit;
  RZ_ASSIGN_OR_RETURN(const std::string here, HostIdentity());
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(HostKey(seat.self.value), here));
  std::vector<WorkerId> peers;
  for (int worker = 0; worker < seat.workers; ++worker) {
    if (worker == seat.self.value) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const absl::StatusOr<std::string> there =
        seat.rendezvous->Get(HostKey(worker), std::max(left, std::chrono::milliseconds(0)));
    if (!there.ok()) {
      return Annotate(there.status(), absl::StrCat("worker ", worker, " has not told its host"));
    }
    if (*there == here) peers.emplace_back(worker);
  }
  return peers;
}

}  // namespace ringzero
