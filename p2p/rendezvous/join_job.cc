// Opens the store that an identity names, gathers, and shares the secret.
#include "p2p/rendezvous/join_job.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "p2p/random_bytes.h"
#include "p2p/rendezvous/agreement.h"
#include "p2p/rendezvous/file_rendezvous.h"
#include "p2p/rendezvous/store_rendezvous.h"

namespace ringzero {
namespace {

constexpr char kSecretKey[] = "secret";
constexpr absl::string_view kGiven = "given";
constexpr absl::string_view kMade = "made:";

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenTcp(absl::string_view place,
                                                         const Identity& identity,
                                                         const JoinOptions& options) {
  if (!options.open_tcp) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous ", identity.rendezvous,
                                                   ": this program has no TCPStore (LibTorch); a "
                                                   "folder would do: file:///…"));
  }
  const size_t colon = place.rfind(':');
  absl::string_view host = place.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  TcpPlace tcp{.host = std::string(host), .job = identity.job, .limit = options.limit};
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(place.substr(colon + 1), &tcp.port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous ", identity.rendezvous, ": wanted tcp://host:port"));
  }
  const bool serves = identity.self.value == 0 && identity.store == Identity::Store::kWorker0;
  if (serves) tcp.side = TcpPlace::Side::kServe;
  return options.open_tcp(tcp);
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenStore(const Identity& identity,
                                                           const JoinOptions& options) {
  absl::string_view place = identity.rendezvous;
  if (absl::ConsumePrefix(&place, "file://")) {
    return OpenFileStore({.folder = std::string(place), .job = identity.job});
  }
  if (absl::ConsumePrefix(&place, "tcp://")) return OpenTcp(place, identity, options);
  return absl::InvalidArgumentError(absl::StrCat(
      "rendezvous: wanted file:///folder or tcp://host:port, found \"", identity.rendezvous, "\""));
}

absl::StatusOr<std::string> ShareSecret(const JobSeat& seat, const JoinOptions& options) {
  const bool given = !options.secret.empty();
  if (seat.self.value == 0) {
    RZ_ASSIGN_OR_RETURN(const std::string made, RandomBytes(kSecretBytes));
    const std::string told = given ? std::string(kGiven) : absl::StrCat(kMade, made);
    RZ_RETURN_IF_ERROR(seat.rendezvous->Put(kSecretKey, told));
    return given ? options.secret : made;
  }
  RZ_ASSIGN_OR_RETURN(const std::string told, seat.rendezvous->Get(kSecretKey, options.limit));
  absl::string_view made = told;
  const bool was_made = absl::ConsumePrefix(&made, kMade);
  if (was_made == given || (!was_made && told != kGiven)) {
    return absl::InvalidArgumentError(absl::StrCat("RINGZERO_JOB_SECRET: worker ", seat.self.value,
                                                   given ? " has" : " lacks", " one, worker 0 ",
                                                   given ? "lacks" : "has", " it"));
  }
  return given ? options.secret : std::string(made);
}

}  // namespace

absl::StatusOr<JobSeat> JoinJob(const Identity& identity, const JoinOptions& options) {
  JobSeat seat{.self = identity.self, .workers = identity.workers, .join_limit = options.limit};
  if (identity.workers == 1) {
    seat.rendezvous = MakeLocalRendezvous();
  } else {
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> store, OpenStore(identity, options));
    Gathering gathering{.self = identity.self,
                        .workers = identity.workers,
                        .restart = identity.restart,
                        .limit = options.limit};
    const bool tcp = absl::string_view(identity.rendezvous).substr(0, 4) == "tcp:";
    if (tcp && identity.self.value == 0 && identity.store == Identity::Store::kWorker0) {
      // The store ends with us; others may still be reading why.
      gathering.leave_limit = std::chrono::seconds(1);
    }
    RZ_ASSIGN_OR_RETURN(seat.rendezvous, GatherAt(std::move(store), gathering));
  }
  const absl::StatusOr<std::string> secret = ShareSecret(seat, options);
  if (!secret.ok()) {
    Disagree(seat, secret.status());  // the others wait for our statement
    return secret.status();
  }
  seat.secret = *secret;
  return seat;
}

}  // namespace ringzero
