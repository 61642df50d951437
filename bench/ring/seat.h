// RunInSeat: a run of ring_perf in which this process is one worker; somebody else started it and
// its peers.
//
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, RunInSeat(job, [](RingJob& job) { return Check(job); }));
//
// Blocking; the number of wrong elements of all workers. What one worker cannot do, or was asked to
// do otherwise than worker 0, ends all of them with the same words.
#ifndef RINGZERO_BENCH_RING_SEAT_H_
#define RINGZERO_BENCH_RING_SEAT_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/ring/job.h"

namespace ringzero {

// Takes the number of workers from job.identity, which is set. InvalidArgument for what only
// workers of our own can do.
absl::Status TakeIdentity(RingJob& job);

// `check` completes the job and says whether it is possible; it is called when all have met.
absl::StatusOr<int64_t> RunInSeat(RingJob job, const std::function<absl::Status(RingJob&)>& check);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_SEAT_H_
