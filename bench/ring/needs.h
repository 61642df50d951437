// What a run of ring_perf needs before it starts: sizes, buffers, slots, memory and GPUs.
//
//   TransportOptions needs = TransportNeedsOf(job, self);
//   for (const TrafficSetup& setup : AllSetups(job)) …;
//
// Functions of the job.
#ifndef RINGZERO_BENCH_RING_NEEDS_H_
#define RINGZERO_BENCH_RING_NEEDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "bench/ring/host.h"
#include "bench/ring/options.h"
#include "bench/ring/run.h"
#include "bench/ring/traffic.h"
#include "p2p/arena.h"
#include "p2p/transport.h"

namespace ringzero {

// What the transport of `self` must have: slots, memory, progress.
TransportOptions TransportNeedsOf(const RingJob& job, WorkerId self);

// The most that any of the run's setups needs; they take turns in it.
TrafficMemory MemoryOf(const RingJob& job, WorkerId self);

// About how many bytes the workers will hold that this process is or starts.
size_t MemoryOfRun(const RingJob& job);

// The number, among the workers of its host, of a worker that is this process or its child.
int PlaceOnHost(const RingJob& job, WorkerId worker);
// The core that --pin gives it.
int CoreOf(const RingJob& job, WorkerId worker);

// Rounds that the iterations are divided into. With --compare the peer measures in each, too.
int Rounds(const RingOptions& options);
int IterationsOfRound(const RingOptions& options);

TrafficSetup SetupOf(const RingJob& job, ElementType type, size_t bytes);
// Of every line of the table.
std::vector<TrafficSetup> AllSetups(const RingJob& job);

// How many buffers take turns for messages of `bytes`, in one line of the table.
int BuffersFor(const RingOptions& options, const HostFacts& facts, size_t bytes);

// GPUs. CUDA does not survive a fork: of the functions below only CheckGpus may be called before
// workers are forked.

// NcclAvailable's error if this machine has no GPU or this build cannot use GPUs.
absl::Status CheckGpus(const RingJob& job);

// Workers of a host take its GPUs in turn. The errors of NcclDevices.
absl::StatusOr<int> GpuOf(const RingJob& job, WorkerId worker);

// Where the payload of a worker's transport lies.
absl::StatusOr<PayloadMemory> MemoryOfPayload(const RingJob& job, WorkerId worker);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_NEEDS_H_
