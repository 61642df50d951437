// Threads over local, forked processes over the others.
#include "bench/ring/transports.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/ring/gpu.h"
#include "bench/ring/needs.h"
#include "bench/ring/worker.h"
#include "p2p/connect.h"
#include "p2p/failure.h"
#include "p2p/faulty_transport.h"
#include "p2p/launch/launcher.h"
#include "p2p/local_transport.h"
#include "p2p/ucx/ucx_transport.h"
#include "sharding/op.h"
#include "zero/long_hops.h"

namespace ringzero {
namespace {

// What arrives here --inject damages.
int DamagedWorker(RingMode mode) { return mode == RingMode::kStream ? 1 : 0; }

std::unique_ptr<Transport> Injected(const RingJob& job, std::unique_ptr<Transport> transport) {
  if (job.options.injection == Injection::kNothing ||
      transport->self().value != DamagedWorker(job.options.mode)) {
    return transport;
  }
  const uint64_t message = MessagesBeforeCheck(job.options) + 1;
  return MakeFaulty(std::move(transport), {.seed = 1, .flip_message = message});
}

absl::Status Pin(const RingJob& job, WorkerId self) {
  if (job.options.pinning == Pinning::kNone) return absl::OkStatus();
  return PinToCore(CoreOf(job, self));
}

// Of a transport between processes.
TransportChoice ChoiceOf(const std::string& name) {
  if (name == "shm") return TransportChoice::kShm;
  if (name == "nccl") return TransportChoice::kNccl;
  return name == "ucx" ? TransportChoice::kUcx : TransportChoice::kAuto;
}

absl::StatusOr<int64_t> RunThreads(const RingJob& job) {
  const int workers = job.options.workers;
  std::vector<TransportOptions> needs;
  for (int w = 0; w < workers; ++w) needs.push_back(TransportNeedsOf(job, WorkerId(w)));
  RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> transports,
                      CreateLocalTransports(needs));
  std::vector<absl::StatusOr<int64_t>> results(workers, 0);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      std::unique_ptr<Transport> transport = Injected(job, std::move(transports[w]));
      const absl::Status pinned = Pin(job, WorkerId(w));
      results[w] = pinned.ok() ? RunRingWorker(job, std::move(transport)) : pinned;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::optional<absl::Status> error;
  for (int w = 0; w < workers; ++w) {
    if (results[w].ok()) continue;
    // The first cause, not what the others say of it.
    if (!error || (IsEcho(*error) && !IsEcho(results[w].status()))) error = results[w].status();
  }
  if (error) return *error;
  return results[0];
}

absl::StatusOr<int64_t> RunProcesses(const RingJob& job) {
  const auto body = [&job](WorkerContext& context) -> absl::StatusOr<std::string> {
    ProcessPlace place{.seat = context.Seat()};
    place.take_endpoint = [&context] { return context.TakeEndpoint(); };
    RZ_ASSIGN_OR_RETURN(const int64_t wrong, RunProcess(job, std::move(place)));
    return absl::StrCat(wrong);
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      LaunchProcesses({.workers = job.options.workers}, body));
  int64_t wrong = 0;
  if (!absl::SimpleAtoi(results[0], &wrong)) {
    return absl::InternalError(absl::StrCat("worker 0 says \"", results[0], "\""));
  }
  return wrong;
}

// What cannot be done with payload that the host does not address.
absl::Status CheckCuda(const RingJob& job) {
  const RingOptions& options = job.options;
  const std::string asked = options.transport == "nccl" ? "--transport nccl" : "--memory cuda";
  if (options.transport == "local" || options.transport == "shm") {
    return absl::InvalidArgumentError(
        absl::StrCat(asked, ": --transport ", options.transport, " carries host memory only"));
  }
  if (options.mode == RingMode::kReduce) {
    return absl::InvalidArgumentError(
        absl::StrCat(asked, ": --mode reduce adds on the host; shift and relay do without"));
  }
  if (options.injection != Injection::kNothing) {
    return absl::InvalidArgumentError(absl::StrCat(asked, ": --inject damages host memory only"));
  }
  // Whatever the reason is: this was asked for and is not there.
  if (const absl::Status there = CheckGpus(job); !there.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(asked, ": ", there.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<GpuNeeds> GpuNeedsOf(const RingJob& job, WorkerId self) {
  GpuNeeds needs;
  if (job.options.memory == MemoryKind::kHost) return needs;
  RZ_ASSIGN_OR_RETURN(needs.device, GpuOf(job, self));
  if (job.options.mode != RingMode::kTrain) return needs;
  needs.long_hops = LongHopsOf(job.plan, self);
  needs.word_kinds = {static_cast<uint8_t>(Channel::kToken)};
  return needs;
}

}  // namespace

absl::StatusOr<int64_t> RunProcess(RingJob job, ProcessPlace place) {
  const WorkerId self = place.seat.self;
  RZ_RETURN_IF_ERROR(Pin(job, self));  // its message thread, too, which it makes later
  RZ_ASSIGN_OR_RETURN(GpuNeeds gpu, GpuNeedsOf(job, self));
  RZ_ASSIGN_OR_RETURN(Connection made,
                      Connect(place.seat, {.transport = ChoiceOf(job.options.transport),
                                           .options = TransportNeedsOf(job, self),
                                           .gpu = std::move(gpu),
                                           .take_endpoint = std::move(place.take_endpoint)}));
  job.notes.push_back(absl::StrCat("Transport: ", made.why));
  return RunRingWorker(job, Injected(job, std::move(made.transport)));
}

absl::Status CheckTransport(const RingJob& job) {
  if (job.options.transport == "ucx" && UcxVersion().empty()) {
    return absl::InvalidArgumentError("--transport ucx: this build has local, shm and auto");
  }
  if (job.options.memory == MemoryKind::kCuda) return CheckCuda(job);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RunRing(const RingJob& job) {
  return job.options.transport == "local" ? RunThreads(job) : RunProcesses(job);
}

}  // namespace ringzero
