// RingJob: what all workers of a run of ring_perf know before it starts.
//
//   RingJob job{.options = options, .facts = ReadHostFacts()};
//
// A value.
#ifndef RINGZERO_BENCH_RING_JOB_H_
#define RINGZERO_BENCH_RING_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/shared_area.h"
#include "p2p/rendezvous/identity.h"
#include "sharding/plan.h"

namespace ringzero {

struct RingJob {
  RingOptions options;
  HostFacts facts;
  Plan plan;                         // train
  std::shared_ptr<SharedArea> area;  // of all workers; nothing: --compare has none
  std::vector<std::string> notes;    // for the header
  std::optional<Identity> identity;  // this process is one worker of an outside job
};

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_JOB_H_
