// RunRingWorker: one worker's part of a run of ring_perf; worker 0's prints and writes it.
//
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, RunRingWorker(job, std::move(transport)));
//
// Blocking, on one thread of the worker's. An error has ended the transport on every worker.
#ifndef RINGZERO_BENCH_RING_WORKER_H_
#define RINGZERO_BENCH_RING_WORKER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/ring/job.h"
#include "p2p/transport.h"

namespace ringzero {

// Returns the number of wrong elements at all workers together.
absl::StatusOr<int64_t> RunRingWorker(const RingJob& job, std::unique_ptr<Transport> transport);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_WORKER_H_
