// Parses, checks what can be checked before anything starts, runs.
#include "bench/ring/run.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "bench/ring/needs.h"
#include "bench/ring/peer.h"
#include "bench/ring/report.h"
#include "bench/ring/train_messages.h"
#include "bench/ring/transports.h"
#include "p2p/rendezvous/identity.h"

namespace ringzero {
namespace {

// MemAvailable of /proc/meminfo in bytes; 0 where it is not said.
size_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  for (std::string unit; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return 0;
}

absl::Status CheckMemory(const RingJob& job) {
  const size_t needed = MemoryOfRun(job);
  const size_t available = AvailableBytes();
  if (available == 0 || needed <= available) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the buffers of this run need ", needed >> 20, " MiB and ", available >> 20,
      " MiB are available: take a smaller -e, fewer -n, --slots or --workers, or --cached"));
}

absl::Status MakeArea(RingJob& job) {
  if (job.options.comparing == Comparing::kNothing || !NeedsSharedArea(job.options)) {
    return absl::OkStatus();
  }
  size_t bytes = 0;
  for (const size_t size : job.options.Sizes()) {
    bytes = std::max(bytes, PeerBytes(size, BuffersFor(job.options, job.facts, size)));
  }
  RZ_ASSIGN_OR_RETURN(job.area,
                      SharedArea::Create({.workers = job.options.workers, .bytes_each = bytes}));
  return absl::OkStatus();
}

// Reads the plan; its sizes become those of the run.
absl::Status TakePlan(RingJob& job) {
  RingOptions& options = job.options;
  if (options.mode != RingMode::kTrain) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(job.plan, ReadTrafficPlan(options.plan_file));
  const Plan& plan = job.plan;
  if (options.workers != 0 && options.workers != plan.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", options.workers, ": the plan has ", plan.workers));
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

// Completes the job; what can be found wrong before anything starts.
absl::Status CheckJob(RingJob& job) {
  if (job.identity) RZ_RETURN_IF_ERROR(TakeIdentity(job));
  RZ_RETURN_IF_ERROR(TakePlan(job));
  RZ_RETURN_IF_ERROR(CheckTransport(job));
  RZ_RETURN_IF_ERROR(CheckComparable(job.options));
  const bool writes = !job.identity || job.identity->self.value == 0;
  if (writes) RZ_RETURN_IF_ERROR(CheckOutputs(job.options));
  RZ_RETURN_IF_ERROR(CheckMemory(job));
  return MakeArea(job);
}

absl::StatusOr<int64_t> RunParsed(RingOptions options) {
  RingJob job{.options = std::move(options), .facts = ReadHostFacts()};
  RZ_ASSIGN_OR_RETURN(job.identity, FindIdentity(job.options.identity, CurrentEnvironment()));
  return RunRing(std::move(job), CheckJob);
}

absl::StatusOr<int64_t> RunWords(const std::vector<std::string>& words) {
  RZ_RETURN_IF_ERROR(CheckStandardStreams());
  RZ_ASSIGN_OR_RETURN(ParsedOptions parsed, ParseRingOptions(words));
  if (parsed.help) {
    RZ_RETURN_IF_ERROR(PrintToStdout(RingHelp()));
    return 0;
  }
  parsed.options.command = absl::StrCat("ring_perf ", absl::StrJoin(words, " "));
  return RunParsed(std::move(parsed.options));
}

// "interrupted by signal 15 (Terminated)" of LaunchProcesses; 0: something else.
int SignalOf(const absl::Status& status) {
  constexpr absl::string_view kBefore = "interrupted by signal ";
  const absl::string_view message = status.message();
  if (status.code() != absl::StatusCode::kCancelled || !absl::StartsWith(message, kBefore))
    return 0;
  int number = 0;
  const size_t end = message.find(' ', kBefore.size());
  return absl::SimpleAtoi(message.substr(kBefore.size(), end - kBefore.size()), &number) ? number
                                                                                         : 0;
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
