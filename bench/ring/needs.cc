// Counts what each size of the run needs, and adds up.
#include "bench/ring/needs.h"

#include <algorithm>
#include <string>

#include "base/status.h"
#include "bench/ring/train_traffic.h"
#include "p2p/job/launcher.h"
#include "p2p/nccl/nccl_transport.h"
#include "zero/transport_needs.h"

namespace ringzero {
int PlaceOnHost(const RingJob& job, WorkerId worker) {
  const bool told = job.identity && job.identity->local_worker;
  return told ? *job.identity->local_worker : worker.value;
}

int CoreOf(const RingJob& job, WorkerId worker) {
  return job.facts.cores[PlaceOnHost(job, worker) % job.facts.cores.size()];
}

int Rounds(const RingOptions& options) { return !options.compare ? 1 : options.rounds; }

int IterationsOfRound(const RingOptions& options) {
  return (options.iterations + Rounds(options) - 1) / Rounds(options);
}

TrafficSetup SetupOf(const RingJob& job, ElementType type, size_t bytes) {
  const RingOptions& options = job.options;
  return {.mode = options.mode,
          .copy = options.copy,
          .type = type,
          .bytes = bytes / SizeOf(type) * SizeOf(type),
          .aggregate = options.aggregate,
          .buffers = BuffersFor(options, job.facts, bytes),
          .slots = options.slots,
          .damage = options.inject_flip};
}

std::vector<TrafficSetup> AllSetups(const RingJob& job) {
  std::vector<TrafficSetup> setups;
  for (const ElementType type : job.options.types) {
    for (const size_t bytes : job.options.Sizes()) setups.push_back(SetupOf(job, type, bytes));
  }
  return setups;
}

TrafficMemory MemoryOf(const RingJob& job, WorkerId self) {
  TrafficMemory most;
  for (const TrafficSetup& setup : AllSetups(job)) {
    const TrafficMemory memory = MemoryOf(setup, self);
    most.send = std::max(most.send, memory.send);
    most.receive = std::max(most.receive, memory.receive);
    most.own = std::max(most.own, memory.own);
  }
  return most;
}

int BuffersFor(const RingOptions& options, const HostFacts& facts, size_t bytes) {
  // A ping-pong has nothing under way when the next iteration begins.
  const size_t least =
      (options.mode == RingMode::kPingpong ? 1 : 2) * static_cast<size_t>(options.aggregate);
  if (options.cached) {
    // What is only read can be on its way more than once.
    return options.mode == RingMode::kReduce ? static_cast<int>(least) : 1;
  }
  const size_t operations =
      (static_cast<size_t>(IterationsOfRound(options)) + 1) * options.aggregate;
  const size_t past_cache = (2 * facts.last_cache_bytes + bytes - 1) / std::max<size_t>(bytes, 1);
  return static_cast<int>(std::max(least, std::min(operations, past_cache)));
}

TransportOptions TransportNeedsOf(const RingJob& job, WorkerId self) {
  const bool train = job.options.mode == RingMode::kTrain;
  TransportOptions needs = train ? TrainNeeds(job.plan, self) : TransportOptions();
  needs.progress = job.options.progress;
  needs.memory = job.options.memory;
  if (train) return needs;
  const TrafficMemory memory = MemoryOf(job, self);
  const bool sums = SentFrom(job.options.mode) == MemoryUse::kSums;
  (sums ? needs.sum_bytes : needs.parameter_bytes) = ArenaBytes(static_cast<int64_t>(memory.send));
  if (!job.options.shares_memory()) {
    needs.parameter_bytes += ArenaBytes(static_cast<int64_t>(memory.receive));
  }
  return needs;
}

size_t MemoryOfRun(const RingJob& job) {
  size_t bytes = 0;
  for (int w = 0; w < job.options.workers; ++w) {
    if (job.identity && job.identity->self.value != w) continue;  // the others count theirs
    const TransportOptions needs = TransportNeedsOf(job, WorkerId(w));
    bytes += needs.parameter_bytes + needs.sum_bytes;
    if (job.options.mode == RingMode::kTrain) {
      for (const StagePlan& stage : job.plan.stages) {
        const bool waits_for_norm = job.plan.takes_sums() && stage.owner.value == w;
        if (waits_for_norm) bytes += static_cast<size_t>(stage.sum_bytes);
      }
      continue;
    }
    bytes += MemoryOf(job, WorkerId(w)).own + 2 * job.facts.last_cache_bytes;
  }
  return bytes;
}

absl::Status CheckGpus(const RingJob& job) {
  if (job.identity) return NcclAvailable();  // this process is the worker
  const auto ask = [](WorkerContext&) -> absl::StatusOr<std::string> {
    return std::string(NcclAvailable().message());
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> answer, LaunchProcesses({.workers = 1}, ask));
  return answer[0].empty() ? absl::OkStatus() : absl::UnavailableError(answer[0]);
}

absl::StatusOr<int> GpuOf(const RingJob& job, WorkerId worker) {
  RZ_ASSIGN_OR_RETURN(const int devices, NcclDevices());
  return PlaceOnHost(job, worker) % devices;
}

absl::StatusOr<PayloadMemory> MemoryOfPayload(const RingJob& job, WorkerId worker) {
  if (job.options.memory == MemoryKind::kHost) return HostMemory();
  RZ_ASSIGN_OR_RETURN(const int device, GpuOf(job, worker));
  return MakeCudaMemory(device, CudaPlace::kDevice);
}

}  // namespace ringzero
