// RingMain: the whole of ring_perf, from its words to its exit code.
//
//   return RingMain({"-b", "8", "-e", "64M", "-f", "2", "--mode", "pingpong"});
//
// 0 done; 1 wrong data; 2 bad flags, or what they ask for is not there; 3 a worker was lost or a
// wait took too long; 5 anything else; 128+n ended by signal n. One line on stderr says why.
#ifndef RINGZERO_BENCH_RING_RUN_H_
#define RINGZERO_BENCH_RING_RUN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/peer.h"
#include "p2p/job/join_job.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

inline constexpr int kRingWrongData = 1;

int RingExitCode(const absl::Status& status);
int RingMain(const std::vector<std::string>& words);

// What all workers of a run know before it starts.
struct RingJob {
  RingOptions options;
  HostFacts facts;
  Plan plan;                         // train
  SharedArea area;                   // of all workers; empty: --compare has none
  std::vector<std::string> notes;    // for the header
  std::optional<Identity> identity;  // this process is one worker of an outside job
};

// One worker's part of the run. Returns the number of wrong elements of all workers together, in
// digits. Worker 0 prints and writes the results. Blocking, on one thread. An error has ended the
// transport on every worker.
absl::StatusOr<std::string> RunRingWorker(const RingJob& job, std::unique_ptr<Transport> transport);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_RUN_H_
