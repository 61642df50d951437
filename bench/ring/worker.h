// RunRingWorker: one worker's part of a run of ring_perf; worker 0's prints and writes it.
//
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, RunRingWorker({.options = options, .facts = facts,
//                                                     .transport = std::move(transport)}));
//
// Blocking, on one thread of the worker's. An error has ended the transport on every worker.
#ifndef RINGZERO_BENCH_RING_WORKER_H_
#define RINGZERO_BENCH_RING_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/shared_area.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

// What all workers of a run know before it starts.
struct RingJob {
  RingOptions options;
  HostFacts facts;
  Plan plan;                         // train
  std::shared_ptr<SharedArea> area;  // of all workers; nothing: --compare has none
  std::vector<std::string> notes;    // for the header
};

// What the transport of `self` must have: slots, memory, progress.
TransportOptions TransportNeedsOf(const RingJob& job, WorkerId self);

// Bytes of memory that all workers together will hold, about.
size_t MemoryOfRun(const RingJob& job);

// Returns the number of wrong elements, on worker 0 that of all workers.
absl::StatusOr<int64_t> RunRingWorker(const RingJob& job, std::unique_ptr<Transport> transport);

// One line's worth: how many buffers take turns for messages of `bytes`.
int BuffersFor(const RingOptions& options, const HostFacts& facts, size_t bytes);
// How many messages arrive at a worker before the first that is checked.
uint64_t MessagesBeforeCheck(const RingOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_WORKER_H_
