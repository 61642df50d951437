// From an identity to a seat: this process joins, as one worker, the job that a launcher from
// outside (torchrun, mpirun, srun, a script) has started.
//
//   RZ_ASSIGN_OR_RETURN(std::optional<Identity> identity,
//                       FindIdentity({.worker = 1, …}, CurrentEnvironment()));
//   RZ_ASSIGN_OR_RETURN(std::optional<OutsideJob> job,
//                       JoinOutsideJob(identity, {.open_tcp = OpenTcpStore}));
//   if (job) …;   // one worker of theirs: job->seat; else we launch workers ourselves
#ifndef RINGZERO_P2P_RENDEZVOUS_JOIN_JOB_H_
#define RINGZERO_P2P_RENDEZVOUS_JOIN_JOB_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/identity.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/rendezvous/rendezvous_store.h"

namespace ringzero {

struct TcpPlace {
  std::string host;
  int port = 0;
  std::string job;  // keys carry it
  enum class Side { kServe, kConnect } side = Side::kConnect;
  bool of_worker_0 = false;  // worker 0 serves the store: a lost store is a lost worker 0
  std::chrono::milliseconds limit{0};
  // How long an answer may take once all workers have come; before, also as long as is left of a
  // further `limit`. A network that is cut gives no answer, and no error.
  std::chrono::milliseconds answer_limit = std::chrono::seconds(5);
};

struct JoinOptions {
  std::chrono::milliseconds limit = std::chrono::minutes(2);  // also of the seat
  std::string secret;                                         // of the job; may be empty
  // A worker that gives no sign of life for so long before it is connected is lost.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
  // Opens tcp:// stores, as in integrations/torch/tcp_rendezvous.h. Without it: InvalidArgument.
  std::function<absl::StatusOr<std::unique_ptr<RendezvousStore>>(const TcpPlace&)> open_tcp;
};

// Opens the rendezvous and waits there for all workers. If no secret is given, worker 0 makes one
// and tells it there. A folder is the user's alone, but who can reach a TCPStore can read the
// secret. The seat's secret is an HMAC of the job's secret and of the start's name: what one start
// has said proves nothing to another start. Then all tell their hosts, so that a plan can count on
// who shares memory. Errors of GatherAt, of the store and of HostsOfWorkers; InvalidArgument at all
// workers if one has another secret than most, or none.
absl::StatusOr<JobSeat> JoinJob(const Identity& identity, const JoinOptions& options);

struct OutsideJob {
  Identity identity;
  JobSeat seat;
};

// JoinJob with the secret of RINGZERO_JOB_SECRET and the limit of RINGZERO_JOIN_TIMEOUT (seconds),
// if the environment has them. No job without an identity. Errors of JoinJob, with this worker's
// number in front.
absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const std::optional<Identity>& identity,
                                                         JoinOptions options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_JOIN_JOB_H_
