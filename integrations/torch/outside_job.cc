// Reads the environment, once.
#include "integrations/torch/outside_job.h"

#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/failure.h"
#include "p2p/rendezvous/join_job.h"

namespace ringzero {
namespace {

absl::StatusOr<JoinOptions> OptionsOf(const Environment& environment,
                                      std::chrono::milliseconds peer_timeout) {
  JoinOptions options{.peer_timeout = peer_timeout, .open_tcp = OpenTcpStore};
  if (const auto secret = environment.find("RINGZERO_JOB_SECRET"); secret != environment.end()) {
    options.secret = secret->second;
  }
  const auto limit = environment.find("RINGZERO_JOIN_TIMEOUT");
  if (limit == environment.end()) return options;
  double seconds = 0;
  if (!absl::SimpleAtod(limit->second, &seconds) || !(seconds > 0) || seconds > 1e6) {
    return absl::InvalidArgumentError(absl::StrCat(
        "RINGZERO_JOIN_TIMEOUT: wanted seconds above 0, found \"", limit->second, "\""));
  }
  options.limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000) + 1);
  return options;
}

}  // namespace

absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const std::optional<Identity>& identity,
                                                         std::chrono::milliseconds peer_timeout) {
  if (!identity.has_value()) return std::nullopt;
  RZ_ASSIGN_OR_RETURN(const JoinOptions options, OptionsOf(CurrentEnvironment(), peer_timeout));
  absl::StatusOr<JobSeat> seat = JoinJob(*identity, options);
  if (!seat.ok()) return SaidBy(identity->self, seat.status());
  return OutsideJob{*identity, *std::move(seat)};
}

}  // namespace ringzero
