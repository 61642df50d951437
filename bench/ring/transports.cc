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
#include "p2p/failure.h"
#include "p2p/faulty_transport.h"
#include "p2p/launcher.h"
#include "p2p/local_transport.h"
#include "p2p/shm_transport.h"
#include "p2p/ucx_transport.h"

namespace ringzero {
namespace {

// Whose messages --inject damages.
constexpr int kDamaged = 0;

std::unique_ptr<Transport> Injected(const RingJob& job, std::unique_ptr<Transport> transport) {
  if (job.options.injection == Injection::kNothing || transport->self().value != kDamaged) {
    return transport;
  }
  const uint64_t message = MessagesBeforeCheck(job.options) + 1;
  return MakeFaulty(std::move(transport), {.seed = 1, .flip_message = message});
}

absl::Status Pin(const RingJob& job, WorkerId self) {
  if (job.options.pinning == Pinning::kNone) return absl::OkStatus();
  return PinToCore(job.facts.cores[self.value % job.facts.cores.size()]);
}

// The transport of one worker that is a process.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const RingJob& job,
                                                         WorkerContext& context) {
  const TransportOptions needs = TransportNeedsOf(job, context.self());
  ShmEndpoint endpoint = context.TakeEndpoint();
  if (job.options.transport == "shm") return CreateShmTransport(std::move(endpoint), needs);
  if (job.options.transport == "ucx") {
    return CreateUcxTransport(context.Seat(), needs, {.board = endpoint.board});
  }
  return absl::InvalidArgumentError(absl::StrCat("--transport ", job.options.transport));
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
    RZ_RETURN_IF_ERROR(Pin(job, context.self()));  // its message thread, too, which it makes later
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, MakeTransport(job, context));
    RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                        RunRingWorker(job, Injected(job, std::move(transport))));
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

}  // namespace

absl::Status CheckTransport(const RingOptions& options) {
  const std::string& name = options.transport;
  const bool ucx = !UcxVersion().empty();
  if (name == "nccl" || name == "auto" || (name == "ucx" && !ucx)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--transport ", name, ": this build has local, shm", ucx ? " and ucx" : " and no more"));
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
