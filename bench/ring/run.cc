// Parses, checks what can be checked before anything starts, and runs: threads over local,
// otherwise processes, started here or by others.
#include "bench/ring/run.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "bench/ring/needs.h"
#include "bench/ring/peer.h"
#include "bench/ring/train_traffic.h"
#include "p2p/connect.h"
#include "p2p/failure.h"
#include "p2p/job/hosts.h"
#include "p2p/job/join_job.h"
#include "p2p/job/launcher.h"
#include "p2p/job/rendezvous.h"
#include "p2p/transport.h"
#include "p2p/ucx/ucx_transport.h"
#include "sharding/memory/block_table.h"
#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {
namespace {

absl::Status CheckMemory(const RingJob& job) {
  const size_t needed_kib = MemoryOfRun(job) >> 10;
  const std::string available = FieldOfFile("/proc/meminfo", "MemAvailable");  // "123 kB"
  size_t available_kib = 0;
  if (!absl::SimpleAtoi(available.substr(0, available.find(' ')), &available_kib) ||
      needed_kib <= available_kib) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "the buffers of this run need ", needed_kib >> 10, " MiB and ", available_kib >> 10,
      " MiB are available: take a smaller -e, fewer -n, --slots or --workers, or --cached");
}

absl::Status MakeArea(RingJob& job) {
  if (!job.options.compare || !job.options.shares_memory()) return absl::OkStatus();
  size_t bytes = 0;
  for (const size_t size : job.options.Sizes()) {
    bytes = std::max(bytes, PeerBytes(size, BuffersFor(job.options, job.facts, size)));
  }
  RZ_ASSIGN_OR_RETURN(job.area, SharedArea::Create(job.options.workers, bytes));
  return absl::OkStatus();
}

// Reads the plan; its sizes become those of the run.
absl::Status TakePlan(RingJob& job) {
  RingOptions& options = job.options;
  if (options.mode != RingMode::kTrain) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(job.plan, ReadTrafficPlan(options.plan_file));
  const Plan& plan = job.plan;
  if (options.workers != 0 && options.workers != plan.workers) {
    return InvalidArgument("--workers ", options.workers, ": the plan has ", plan.workers);
  }
  options.workers = plan.workers;
  if (options.slots == 0) options.slots = plan.window;
  RZ_ASSIGN_OR_RETURN(options.min_bytes, BytesPerIteration(plan));
  options.max_bytes = options.min_bytes;
  job.notes.push_back(absl::StrCat("Plan: rule ", ToString(plan.rule), ", ", plan.workers,
                                   " workers, ", plan.stage_count(), " stages, ", plan.laps,
                                   " laps, window ", options.slots));
  return absl::OkStatus();
}

// Takes the number of workers from job.identity; refuses what only workers started here can do.
absl::Status TakeIdentity(RingJob& job) {
  const Identity& identity = *job.identity;
  RingOptions& options = job.options;
  options.workers = identity.workers;
  RZ_RETURN_IF_ERROR(CheckWorkers(options));
  if (options.transport == "local") {
    return InvalidArgument(
        "--transport local: its workers are threads of one process, and this is ",
        Describe(identity), "; shm, ucx and auto are there");
  }
  if (options.compare && options.shares_memory()) {
    return InvalidArgument(
        "--compare: --transport ", options.transport,
        " is compared in memory that workers inherit from the process that starts them; this is ",
        Describe(identity), ", so leave the starting to ring_perf");
  }
  job.notes.push_back(absl::StrCat("Workers started by others: ", identity.workers, " by ",
                                   identity.source, ", rendezvous ",
                                   identity.rendezvous.empty() ? "none" : identity.rendezvous));
  return absl::OkStatus();
}

// Refuses what cannot be done with payload that the host does not address.
absl::Status CheckCuda(const RingJob& job) {
  const RingOptions& options = job.options;
  const std::string asked = options.transport == "nccl" ? "--transport nccl" : "--memory cuda";
  if (options.shares_memory()) {
    return InvalidArgument(asked, ": --transport ", options.transport, " carries host memory only");
  }
  if (options.mode == RingMode::kReduce) {
    return InvalidArgument(asked, ": --mode reduce adds on the host; shift and relay do without");
  }
  if (options.inject_flip) {
    return InvalidArgument(asked, ": --inject damages host memory only");
  }
  // InvalidArgument, whatever the reason is: GPUs were asked for and are not there.
  if (const absl::Status there = CheckGpus(job); !there.ok()) {
    return InvalidArgument(asked, ": ", there.message());
  }
  return absl::OkStatus();
}

absl::Status CheckTransport(const RingJob& job) {
  if (job.options.transport == "ucx" && UcxVersion().empty()) {
    return absl::InvalidArgumentError("--transport ucx: this build has local, shm and auto");
  }
  if (job.options.memory == MemoryKind::kCuda) return CheckCuda(job);
  return absl::OkStatus();
}

// Completes the job, and finds what can be found wrong before anything starts.
absl::Status CheckJob(RingJob& job) {
  if (job.identity) RZ_RETURN_IF_ERROR(TakeIdentity(job));
  RZ_RETURN_IF_ERROR(TakePlan(job));
  RZ_RETURN_IF_ERROR(CheckTransport(job));
  RZ_RETURN_IF_ERROR(CheckComparable(job.options));
  if (!job.identity || job.identity->self.value == 0) {  // the worker that writes
    RZ_RETURN_IF_ERROR(CheckOutputFiles(
        {{"--output_file", job.options.json_file}, {"--csv", job.options.csv_file}},
        {{"--plan", job.options.plan_file}}));
  }
  RZ_RETURN_IF_ERROR(CheckMemory(job));
  return MakeArea(job);
}

// Of a transport between processes.
TransportChoice ChoiceOf(const std::string& name) {
  if (name == "shm") return TransportChoice::kShm;
  if (name == "nccl") return TransportChoice::kNccl;
  return name == "ucx" ? TransportChoice::kUcx : TransportChoice::kAuto;
}

// The number of wrong elements of all workers, which each worker returns.
absl::StatusOr<int64_t> WrongOf(const absl::StatusOr<std::vector<std::string>>& results) {
  RZ_RETURN_IF_ERROR(results.status());
  int64_t wrong = 0;
  if (absl::SimpleAtoi(results->front(), &wrong)) return wrong;
  return Internal("the result is \"", results->front(), "\"");
}

absl::StatusOr<int64_t> RunLocal(const RingJob& job) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < job.options.workers; ++w) needs.push_back(TransportNeedsOf(job, WorkerId(w)));
  RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> transports,
                      CreateLocalTransports(needs));
  return WrongOf(RunThreads(job.options.workers, [&](WorkerId w) -> absl::StatusOr<std::string> {
    if (job.options.pin) RZ_RETURN_IF_ERROR(PinToCore(CoreOf(job, w)));
    return RunRingWorker(job, std::move(transports[w.value]));
  }));
}

absl::StatusOr<GpuNeeds> GpuNeedsOf(const RingJob& job, WorkerId self) {
  GpuNeeds needs;
  if (job.options.memory == MemoryKind::kHost) return needs;
  RZ_ASSIGN_OR_RETURN(needs.device, GpuOf(job, self));
  if (job.options.mode != RingMode::kTrain) return needs;
  RZ_ASSIGN_OR_RETURN(needs.pairs, PayloadPairs(job.plan));
  needs.word_kinds = {static_cast<uint8_t>(Channel::kToken)};
  return needs;
}

// What a worker started by others must have alike with the other workers. Completes the job, too.
absl::StatusOr<std::vector<AgreementSection>> StatementOf(RingJob& job) {
  RZ_RETURN_IF_ERROR(CheckJob(job));
  std::vector<AgreementSection> sections = {
      {"versions", absl::StrCat("ringzero = ", RINGZERO_VERSION, "\n", WireVersions())},
      {"flags", job.options.agreed}};
  if (job.options.mode == RingMode::kTrain) sections.push_back({"plan", PlanToString(job.plan)});
  if (job.options.compare) {
    // Worker 0 starts both processes of the peer tool.
    RZ_ASSIGN_OR_RETURN(const std::string host, ThisHost());
    sections.push_back({"--compare, whose tool runs on one host", absl::StrCat("host = ", host)});
  }
  return sections;
}

absl::StatusOr<std::string> RunProcess(RingJob job, WorkerContext& context) {
  const WorkerId self = context.self();
  // Its message thread, too, which it makes later.
  if (job.options.pin) RZ_RETURN_IF_ERROR(PinToCore(CoreOf(job, self)));
  RZ_ASSIGN_OR_RETURN(GpuNeeds gpu, GpuNeedsOf(job, self));
  RZ_ASSIGN_OR_RETURN(Connection made,
                      context.Connect({.transport = ChoiceOf(job.options.transport),
                                       .options = TransportNeedsOf(job, self),
                                       .gpu = std::move(gpu)}));
  job.notes.push_back(absl::StrCat("Transport: ", made.why));
  return RunRingWorker(job, std::move(made.transport));
}

// Runs all workers: threads for local, processes for other transports; or the one worker that this
// process is. Returns the number of wrong elements of all, or the first cause of a failure. Checks
// before anything starts, or, if others have started the workers, when these have met: if one of
// them cannot run, or was asked otherwise than worker 0, all end with the same words.
absl::StatusOr<int64_t> RunRing(RingJob job) {
  RZ_ASSIGN_OR_RETURN(const std::optional<OutsideJob> outside, JoinOutsideJob(job.identity, {}));
  JobOptions options;
  if (outside.has_value()) {
    options.seat = outside->seat;
  } else {
    RZ_RETURN_IF_ERROR(CheckJob(job));
    if (job.options.transport == "local") return RunLocal(job);
    options.launch.workers = job.options.workers;
  }
  const auto results = RunJob(options, [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    if (!context.launched()) RZ_RETURN_IF_ERROR(context.Agree(StatementOf(job)));
    return RunProcess(job, context);
  });
  if (!results.ok() && outside.has_value()) {
    return ReportedBy(outside->seat.self, results.status());
  }
  return WrongOf(results);
}

absl::StatusOr<int64_t> RunWords(const std::vector<std::string>& words) {
  RZ_RETURN_IF_ERROR(CheckStandardStreams());
  RZ_ASSIGN_OR_RETURN(ParsedOptions parsed, ParseRingOptions(words));
  if (!parsed.help.empty()) {
    RZ_RETURN_IF_ERROR(PrintToStdout(parsed.help));
    return 0;
  }
  parsed.options.command = absl::StrCat("ring_perf ", absl::StrJoin(words, " "));
  RingJob job{.options = std::move(parsed.options), .facts = ReadHostFacts()};
  RZ_ASSIGN_OR_RETURN(job.identity, FindIdentity(job.options.identity, CurrentEnvironment()));
  return RunRing(std::move(job));
}

// The 15 of LaunchProcesses' "interrupted by signal 15 (Terminated)"; 0: another error.
int SignalOf(const absl::Status& status) {
  int number = 0;
  const std::string message(absl::IsCancelled(status) ? status.message() : "");
  std::sscanf(message.c_str(), "interrupted by signal %d", &number);
  return number;
}

}  // namespace

int RingExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented: return 2;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return 3;
    default: return SignalOf(status) > 0 ? 128 + SignalOf(status) : 5;
  }
}

int RingMain(const std::vector<std::string>& words) {
  const absl::StatusOr<int64_t> wrong = RunWords(words);
  if (!wrong.ok()) {
    std::fprintf(stderr, "ring_perf: error: %s\n", std::string(wrong.status().message()).c_str());
    return RingExitCode(wrong.status());
  }
  return *wrong == 0 ? 0 : kRingWrongData;
}

}  // namespace ringzero
