// RingJob: what all workers of a run of ring_perf know before it starts; and RunRingWorker: one
// worker's part of the run.
//
//   RingJob job{.options = options, .facts = ReadHostFacts()};
//   RZ_ASSIGN_OR_RETURN(std::string wrong, RunRingWorker(job, std::move(transport)));
#ifndef RINGZERO_BENCH_RING_JOB_H_
#define RINGZERO_BENCH_RING_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/peer.h"
#include "p2p/rendezvous/join_job.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

struct RingJob {
  RingOptions options;
  HostFacts facts;
  Plan plan;                         // train
  SharedArea area;                   // of all workers; empty: --compare has none
  std::vector<std::string> notes;    // for the header
  std::optional<Identity> identity;  // this process is one worker of an outside job
};

// Returns the number of wrong elements of all workers together, in digits. Worker 0 prints and
// writes the results. Blocking, on one thread. An error has ended the transport on every worker.
absl::StatusOr<std::string> RunRingWorker(const RingJob& job, std::unique_ptr<Transport> transport);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_JOB_H_
