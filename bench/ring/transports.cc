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
#include "bench/ring/needs.h"
#include "bench/ring/worker.h"
#include "p2p/connect.h"
#include "p2p/failure.h"
#include "p2p/faulty_transport.h"
#include "p2p/launch/launcher.h"
#include "p2p/local_transport.h"
#include "p2p/nccl/nccl_lane.h"
#include "p2p/ucx/ucx_transport.h"

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

// Whatever the reason is: this was asked for and is not there.
absl::Status Refusal(const std::string& name, const absl::Status& why) {
  if (why.ok()) return why;
  return absl::InvalidArgumentError(absl::StrCat("--transport ", name, ": ", why.message()));
}

}  // namespace

absl::StatusOr<int64_t> RunProcess(RingJob job, ProcessPlace place) {
  const WorkerId self = place.seat.self;
  RZ_RETURN_IF_ERROR(Pin(job, self));  // its message thread, too, which it makes later
  RZ_ASSIGN_OR_RETURN(Connection made,
                      Connect(place.seat, {.transport = ChoiceOf(job.options.transport),
                                           .options = TransportNeedsOf(job, self),
                                           .take_endpoint = std::move(place.take_endpoint)}));
  job.notes.push_back(absl::StrCat("Transport: ", made.why));
  return RunRingWorker(job, Injected(job, std::move(made.transport)));
}

absl::Status CheckTransport(const RingOptions& options) {
  const std::string& name = options.transport;
  if (name == "nccl") {
    RZ_RETURN_IF_ERROR(Refusal(name, NcclAvailable()));
    return absl::InvalidArgumentError(
        "--transport nccl: its buffers lie in the GPU's memory, and this program fills and checks "
        "them on the host");
  }
  if (name == "ucx" && UcxVersion().empty()) {
    return absl::InvalidArgumentError("--transport ucx: this build has local, shm and auto");
  }
  if (options.memory == MemoryKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory cuda: --transport ", name,
                     name == "ucx" ? " copies on the host only: this program fills and checks its "
                                     "buffers there"
                                   : " carries host memory only"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RunRing(const RingJob& job) {
  return job.options.transport == "local" ? RunThreads(job) : RunProcesses(job);
}

}  // namespace ringzero
