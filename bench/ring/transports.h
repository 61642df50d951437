// The seam between ring_perf and the transports: which are possible, and how the workers of a run
// come to theirs.
//
//   RZ_RETURN_IF_ERROR(CheckTransport(job));
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, RunRing(job));     // starts all workers, returns when done
//
// A new transport joins in transports.cc alone.
#ifndef RINGZERO_BENCH_RING_TRANSPORTS_H_
#define RINGZERO_BENCH_RING_TRANSPORTS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/ring/job.h"
#include "p2p/rendezvous/job_seat.h"
#include "p2p/shm/shm_transport.h"

namespace ringzero {

// InvalidArgument, saying what was wanted and what is there, for a transport, memory or way of
// waiting that this build or this machine does not have.
absl::Status CheckTransport(const RingJob& job);

struct ProcessPlace {
  JobSeat seat;
  std::function<ShmEndpoint()> take_endpoint;  // null: somebody else started the workers
};
// Runs the one worker that this process is. The number of wrong elements of all.
absl::StatusOr<int64_t> RunProcess(RingJob job, ProcessPlace place);

// Runs all workers: threads for local, processes for the others. The number of wrong elements, or
// the first cause of a failure. Call it from a process with one thread.
absl::StatusOr<int64_t> RunRing(const RingJob& job);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRANSPORTS_H_
