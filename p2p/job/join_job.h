// Which worker of how many this process is, and where the workers meet, as the command line or a
// launcher's environment says (Identity); and how this process joins, as one worker, the job that
// the launcher (torchrun, mpirun, srun, a script) has started.
//
//   RZ_ASSIGN_OR_RETURN(std::optional<Identity> identity,
//                       FindIdentity({.worker = 1, …}, CurrentEnvironment()));
//   RZ_ASSIGN_OR_RETURN(std::optional<OutsideJob> job,
//                       JoinOutsideJob(identity, {.open_tcp = OpenTcpStore}));
//   if (!job) …;           // we launch the workers ourselves
//   Describe(*identity);   // "worker 1 of 4 (torchrun), rendezvous tcp://10.0.0.1:29500"
//   job->seat;             // of one worker of theirs
//
// The identity depends on flags, on the environment, and on the processes above this one: there
// MPICH's proxy names a job. The first launcher that numbers this worker is taken whole: torchrun,
// Open MPI, PMI, PMIx, Slurm, Kubernetes (a pod of an indexed Job or a JobSet; --worker goes before
// it). Flags must agree with the launcher; without a launcher they number the worker.
#ifndef RINGZERO_P2P_JOB_JOIN_JOB_H_
#define RINGZERO_P2P_JOB_JOIN_JOB_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/job/rendezvous.h"
#include "p2p/job/store_rendezvous.h"

namespace ringzero {

struct IdentityFlags {
  std::optional<int> worker;   // --worker
  std::optional<int> workers;  // --workers
  std::string rendezvous;      // --rendezvous; empty: not given
};

struct Identity {
  WorkerId self{0};
  int workers = 1;
  // Number and count among the workers of this host, if the launcher says them.
  std::optional<int> local_worker;
  std::optional<int> local_workers;
  std::string source;      // "command line", or the launcher: "torchrun", …
  std::string rendezvous;  // "file:///…" or "tcp://host:port"; empty only for a single worker
  // kAgent: torchrun's agent serves the store, also over restarts. kWorker0: worker 0 does (tcp).
  enum class Store { kWorker0, kAgent } store = Store::kWorker0;
  std::string job;  // tells jobs apart; may be empty
  int restart = 0;  // how often the job was started again
};

using Environment = std::map<std::string, std::string>;
Environment CurrentEnvironment();

// No identity if nothing says that this process is one worker of a job. --workers alone does not
// say so, nor does a Slurm step of one task (an interactive shell is such a step).
//
// InvalidArgument, one line: a value that is no number, a launcher's variable without its other
// variables, a worker number that is too large, flags that contradict the launcher, no place to
// meet. Workers of one host need no place if their launcher says that all of them are on this host,
// and names the job: they meet in $TMPDIR/ringzero-UID.
absl::StatusOr<std::optional<Identity>> FindIdentity(const IdentityFlags& flags,
                                                     const Environment& environment);

std::string Describe(const Identity& identity);

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

#endif  // RINGZERO_P2P_JOB_JOIN_JOB_H_
