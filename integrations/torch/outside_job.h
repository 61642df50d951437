// OutsideJob: the job that a launcher from outside (torchrun, mpirun, srun, a script) has started,
// of which this process is one worker.
//
//   RZ_ASSIGN_OR_RETURN(std::optional<Identity> identity,
//                       FindIdentity({.worker = 1, …}, CurrentEnvironment()));
//   RZ_ASSIGN_OR_RETURN(std::optional<OutsideJob> job, JoinOutsideJob(identity, peer_timeout));
//   if (job) …;   // one worker of theirs: job->seat; else we launch workers ourselves
#ifndef RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_
#define RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/identity.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

struct OutsideJob {
  Identity identity;
  JobSeat seat;
};

// Nothing without an identity. Else waits for all the job's workers: two minutes, or
// RINGZERO_JOIN_TIMEOUT seconds; a worker that comes and then gives no sign of life for
// `peer_timeout` ends that, and every wait until it is connected. Errors of JoinJob, with this
// worker's number in front.
absl::StatusOr<std::optional<OutsideJob>> JoinOutsideJob(const std::optional<Identity>& identity,
                                                         std::chrono::milliseconds peer_timeout);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_OUTSIDE_JOB_H_
