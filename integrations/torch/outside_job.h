// OutsideJob: the job that a launcher from outside (torchrun, mpirun, srun, a script) has started,
// of which this process is one worker.
//
//   RZ_ASSIGN_OR_RETURN(std::optional<OutsideJob> job, JoinOutsideJob({.worker = 1, …}));
//   if (job) …;   // one worker of theirs: job->seat; else we launch workers ourselves
#ifndef RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_
#define RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_

#include <optional>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/identity.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

struct OutsideJob {
  Identity identity;
  JobSeat seat;
};

// Nothing when nobody says that there is one (p2p/rendezvous/identity.h). Else waits for all its
// workers: two minutes, or RINGZERO_JOIN_TIMEOUT seconds. Errors of FindIdentity and JoinJob, the
// latter with this worker's number in front.
absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const IdentityFlags& flags);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_
