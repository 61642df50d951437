// The seam between ring_perf and the transports: which are possible, and how the workers of a run
// come to theirs.
//
//   RZ_RETURN_IF_ERROR(CheckTransport(job));
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, RunRing(job, CheckJob));   // returns when all are done
//
// A new transport joins in transports.cc alone.
#ifndef RINGZERO_BENCH_RING_TRANSPORTS_H_
#define RINGZERO_BENCH_RING_TRANSPORTS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/ring/job.h"

namespace ringzero {

// InvalidArgument, saying what was wanted and what is there, for a transport, memory or way of
// waiting that this build or this machine does not have.
absl::Status CheckTransport(const RingJob& job);

// Takes the number of workers from job.identity, which is set. InvalidArgument for what only
// workers of our own can do.
absl::Status TakeIdentity(RingJob& job);

// Runs all workers: threads for local, processes for the others; with job.identity the one worker
// that this process is. The number of wrong elements of all, or the first cause of a failure. Call
// it from a process with one thread. `check` completes the job and says whether it is possible:
// before anything starts, or when workers that others have started have met. What one of those
// cannot do, or was asked to do otherwise than worker 0, ends all of them with the same words.
absl::StatusOr<int64_t> RunRing(RingJob job, const std::function<absl::Status(RingJob&)>& check);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRANSPORTS_H_
