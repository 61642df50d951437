// Identity: which worker of how many this process is, and where the workers meet, as the command
// line or a launcher's environment says.
//
//   RZ_ASSIGN_OR_RETURN(std::optional<Identity> identity,
//                       FindIdentity(flags, CurrentEnvironment()));
//   if (!identity) …;      // we launch the workers ourselves
//   Describe(*identity);   // "worker 1 of 4 (torchrun), rendezvous tcp://10.0.0.1:29500"
//
// The results depend on flags, on the environment, and on the processes above this one: there
// MPICH's proxy names a job. The first launcher that numbers this worker is taken whole: torchrun,
// Open MPI, PMI, PMIx, Slurm, Kubernetes (a pod of an indexed Job or a JobSet; --worker goes before
// it). Flags must agree with the launcher; without a launcher they number the worker.
#ifndef RINGZERO_P2P_RENDEZVOUS_IDENTITY_H_
#define RINGZERO_P2P_RENDEZVOUS_IDENTITY_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

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

// Where workers meet: a folder, or a TCPStore.
struct MeetingPlace {
  std::string folder;  // of file:///folder; else empty
  std::string host;    // of tcp://host:port; an IPv6 address without its brackets
  int port = 0;
};
// InvalidArgument for any other text.
absl::StatusOr<MeetingPlace> ParseMeetingPlace(absl::string_view text);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_IDENTITY_H_
