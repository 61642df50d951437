// Opens the store that an identity names, gathers, and shares the secret and the hosts.
#include "p2p/rendezvous/join_job.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/status.h"
#include "p2p/failure.h"
#include "p2p/random_bytes.h"
#include "p2p/rendezvous/agreement.h"
#include "p2p/rendezvous/hosts.h"
#include "p2p/rendezvous/store_rendezvous.h"

namespace ringzero {
namespace {

constexpr char kMadeSecretKey[] = "secret";
constexpr char kSecretVariable[] = "RINGZERO_JOB_SECRET";

// The HMAC of `what` and the start's name.
std::string Hmac(const std::string& secret, absl::string_view what, const JobSeat& seat) {
  const Digest digest = HmacSha256(secret, absl::StrCat(what, seat.rendezvous->start()));
  return {digest.begin(), digest.end()};
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenStore(const Identity& identity,
                                                           const MeetingPlace& place,
                                                           const JoinOptions& options) {
  if (!place.folder.empty()) return OpenFileStore(place.folder, identity.job);
  if (!options.open_tcp) {
    return InvalidArgument("rendezvous ", identity.rendezvous,
                           ": this program has no TCPStore (LibTorch); a "
                           "folder would do: file:///…");
  }
  TcpPlace tcp{.host = place.host, .port = place.port, .job = identity.job, .limit = options.limit};
  tcp.of_worker_0 = identity.store == Identity::Store::kWorker0;
  if (tcp.of_worker_0 && identity.self.value == 0) tcp.side = TcpPlace::Side::kServe;
  return options.open_tcp(tcp);
}

// The error names the first worker whose mark differs from that of most; of two workers, worker 1.
absl::Status CompareSecretMarks(const std::vector<std::string>& marks) {
  const auto usual =
      std::max_element(marks.begin(), marks.end(), [&](const std::string& a, const std::string& b) {
        return std::count(marks.begin(), marks.end(), a) <
               std::count(marks.begin(), marks.end(), b);
      });
  const auto odd =
      std::find_if(marks.begin(), marks.end(), [&](const auto& mark) { return mark != *usual; });
  if (odd == marks.end()) return absl::OkStatus();
  const std::string one = absl::StrCat("worker ", odd - marks.begin());
  const std::string others = absl::StrCat("worker ", usual - marks.begin());
  const std::string what = odd->empty()     ? absl::StrCat("none, ", others, " has one")
                           : usual->empty() ? absl::StrCat("one, ", others, " has none")
                                            : absl::StrCat("another than ", others);
  return InvalidArgument(kSecretVariable, ": ", one, " has ", what);
}

// Each worker shows a mark of the secret that it was given: an HMAC, or "" for no secret. Equal
// secrets have equal marks, and no mark says what the secret is.
absl::StatusOr<std::string> ShareSecret(const JobSeat& seat, const JoinOptions& options) {
  const std::string mine =
      options.secret.empty() ? "" : Hmac(options.secret, "ringzero mark ", seat);
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> marks,
                      TellAll(seat, "secret", mine, "has not shown its secret"));
  RZ_RETURN_IF_ERROR(CompareSecretMarks(marks));
  if (!options.secret.empty()) return options.secret;
  if (seat.self.value != 0) return seat.rendezvous->Get(kMadeSecretKey, options.limit);
  RZ_ASSIGN_OR_RETURN(std::string made, RandomBytes(kSecretBytes));
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(kMadeSecretKey, made));
  return made;
}

// What all workers know of each other before they plan.
absl::Status ShareFacts(const JoinOptions& options, JobSeat& seat) {
  RZ_ASSIGN_OR_RETURN(const std::string secret, ShareSecret(seat, options));
  seat.secret = Hmac(secret, "ringzero start ", seat);
  if (seat.workers == 1) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(seat.hosts, HostsOfWorkers(seat));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobSeat> JoinJob(const Identity& identity, const JoinOptions& options) {
  JobSeat seat{.self = identity.self, .workers = identity.workers, .join_limit = options.limit};
  if (identity.workers == 1) {
    seat.rendezvous = MakeLocalRendezvous();
  } else {
    RZ_ASSIGN_OR_RETURN(const MeetingPlace place, ParseMeetingPlace(identity.rendezvous));
    RZ_ASSIGN_OR_RETURN(auto store, OpenStore(identity, place, options));
    seat.store_host = place.host;
    Gathering gathering{.self = identity.self,
                        .workers = identity.workers,
                        .restart = identity.restart,
                        .limit = options.limit,
                        .peer_timeout = options.peer_timeout};
    if (!place.host.empty() && identity.self.value == 0 &&
        identity.store == Identity::Store::kWorker0) {
      // The store ends with this worker; others may still be reading there why it ended.
      gathering.leave_limit = std::chrono::seconds(1);
    }
    RZ_ASSIGN_OR_RETURN(seat.rendezvous, GatherAt(std::move(store), gathering));
  }
  const absl::Status shared = ShareFacts(options, seat);
  if (!shared.ok()) Disagree(seat, shared);  // the others wait for our statement
  RZ_RETURN_IF_ERROR(shared);
  return seat;
}

absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const std::optional<Identity>& identity,
                                                         JoinOptions options) {
  if (!identity.has_value()) return std::nullopt;
  if (const char* secret = std::getenv(kSecretVariable)) options.secret = secret;
  if (const char* limit = std::getenv("RINGZERO_JOIN_TIMEOUT")) {
    double seconds = 0;
    if (!absl::SimpleAtod(limit, &seconds) || !(seconds > 0) || seconds > 1e6) {
      return InvalidArgument("RINGZERO_JOIN_TIMEOUT: wanted seconds above 0, found \"", limit,
                             "\"");
    }
    options.limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
  }
  absl::StatusOr<JobSeat> seat = JoinJob(*identity, options);
  if (!seat.ok()) return SaidBy(identity->self, seat.status());
  return OutsideJob{*identity, *std::move(seat)};
}

}  // namespace ringzero
