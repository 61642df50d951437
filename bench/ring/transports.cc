// Threads over local; over the others processes, started here or by others.
#include "bench/ring/transports.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/ring/needs.h"
#include "bench/ring/peer.h"
#include "p2p/connect.h"
#include "p2p/failure.h"
#include "p2p/faulty_transport.h"
#include "p2p/launch/launcher.h"
#include "p2p/local_transport.h"
#include "p2p/rendezvous/agreement.h"
#include "p2p/rendezvous/hosts.h"
#include "p2p/rendezvous/join_job.h"
#include "p2p/ucx/ucx_transport.h"
#include "sharding/op.h"
#include "sharding/plan.h"
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

// The number of wrong elements, which each worker returns of all.
absl::StatusOr<int64_t> WrongOf(const absl::StatusOr<std::vector<std::string>>& results) {
  RZ_RETURN_IF_ERROR(results.status());
  int64_t wrong = 0;
  if (absl::SimpleAtoi(results->front(), &wrong)) return wrong;
  return absl::InternalError(absl::StrCat("the result is \"", results->front(), "\""));
}

absl::StatusOr<std::string> RunWorker(const RingJob& job, std::unique_ptr<Transport> transport) {
  RZ_ASSIGN_OR_RETURN(const int64_t wrong, RunRingWorker(job, Injected(job, std::move(transport))));
  return absl::StrCat(wrong);
}

absl::StatusOr<int64_t> RunLocal(const RingJob& job) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < job.options.workers; ++w) needs.push_back(TransportNeedsOf(job, WorkerId(w)));
  RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> transports,
                      CreateLocalTransports(needs));
  return WrongOf(RunThreads(job.options.workers, [&](WorkerId w) -> absl::StatusOr<std::string> {
    RZ_RETURN_IF_ERROR(Pin(job, w));
    return RunWorker(job, std::move(transports[static_cast<size_t>(w.value)]));
  }));
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

// What workers that were asked for different things would wait for each other about.
std::string OptionsText(const RingOptions& o) {
  std::string text;
  const auto add = [&text](const char* name, const auto& value) {
    absl::StrAppend(&text, name, " = ", value, "\n");
  };
  add("--minbytes", o.min_bytes);
  add("--maxbytes", o.max_bytes);
  add("--stepbytes", o.step_bytes);
  add("--stepfactor", o.step_factor);
  add("--iters", o.iterations);
  add("--warmup_iters", o.warmup);
  add("--agg_iters", o.aggregate);
  add("--check", o.check);
  add("--run_cycles", o.cycles);
  add("--mode", ToString(o.mode));
  add("--transport", o.transport);
  add("--slots", o.slots);
  add("--copy", static_cast<int>(o.receiving));
  add("--compare", static_cast<int>(o.comparing));
  add("--rounds", o.rounds);
  for (const ElementType type : o.types) add("--datatype", ToString(type));
  return text;
}

// Of a worker that others have started: completes the job, too.
absl::StatusOr<std::vector<AgreementSection>> StatementOf(
    RingJob& job, const std::function<absl::Status(RingJob&)>& check) {
  RZ_RETURN_IF_ERROR(check(job));
  std::vector<AgreementSection> sections = {
      {"versions", absl::StrCat("ringzero = ", RINGZERO_VERSION, "\n", WireVersions())},
      {"flags", OptionsText(job.options)}};
  if (job.options.mode == RingMode::kTrain) sections.push_back({"plan", PlanToString(job.plan)});
  if (job.options.comparing != Comparing::kNothing) {
    // Worker 0 starts both processes of the peer tool.
    RZ_ASSIGN_OR_RETURN(const std::string host, ThisHost());
    sections.push_back({"--compare, whose tool runs on one host", absl::StrCat("host = ", host)});
  }
  return sections;
}

absl::StatusOr<std::string> RunProcess(RingJob job, WorkerContext& context) {
  const WorkerId self = context.self();
  RZ_RETURN_IF_ERROR(Pin(job, self));  // its message thread, too, which it makes later
  RZ_ASSIGN_OR_RETURN(GpuNeeds gpu, GpuNeedsOf(job, self));
  RZ_ASSIGN_OR_RETURN(Connection made,
                      context.Connect({.transport = ChoiceOf(job.options.transport),
                                       .options = TransportNeedsOf(job, self),
                                       .gpu = std::move(gpu)}));
  job.notes.push_back(absl::StrCat("Transport: ", made.why));
  return RunWorker(job, std::move(made.transport));
}

}  // namespace

absl::Status CheckTransport(const RingJob& job) {
  if (job.options.transport == "ucx" && UcxVersion().empty()) {
    return absl::InvalidArgumentError("--transport ucx: this build has local, shm and auto");
  }
  if (job.options.memory == MemoryKind::kCuda) return CheckCuda(job);
  return absl::OkStatus();
}

absl::Status TakeIdentity(RingJob& job) {
  const Identity& identity = *job.identity;
  RingOptions& options = job.options;
  options.workers = identity.workers;
  RZ_RETURN_IF_ERROR(CheckWorkers(options));
  if (options.transport == "local") {
    return absl::InvalidArgumentError(
        absl::StrCat("--transport local: its workers are threads of one process, and this is ",
                     Describe(identity), "; shm, ucx and auto are there"));
  }
  if (options.comparing != Comparing::kNothing && NeedsSharedArea(options)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--compare: --transport ", options.transport,
        " is compared in memory that workers inherit from the process that starts them; this is ",
        Describe(identity), ", so leave the starting to ring_perf"));
  }
  job.notes.push_back(absl::StrCat("Workers started by others: ", identity.workers, " by ",
                                   identity.source, ", rendezvous ",
                                   identity.rendezvous.empty() ? "none" : identity.rendezvous));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RunRing(RingJob job, const std::function<absl::Status(RingJob&)>& check) {
  RZ_ASSIGN_OR_RETURN(const std::optional<OutsideJob> outside, JoinOutsideJob(job.identity, {}));
  JobOptions options;
  if (outside.has_value()) {
    options.seat = outside->seat;
  } else {
    RZ_RETURN_IF_ERROR(check(job));
    if (job.options.transport == "local") return RunLocal(job);
    options.launch.workers = job.options.workers;
  }
  const auto results = RunJob(options, [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    if (!context.launched()) RZ_RETURN_IF_ERROR(context.Agree(StatementOf(job, check)));
    return RunProcess(job, context);
  });
  if (!results.ok() && outside.has_value()) {
    return ReportedBy(outside->seat.self, results.status());
  }
  return WrongOf(results);
}

}  // namespace ringzero
