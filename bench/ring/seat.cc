// Meets the others, compares what was asked for, runs this worker, leaves its result.
#include "bench/ring/seat.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/ring/peer.h"
#include "bench/ring/report.h"
#include "bench/ring/transports.h"
#include "p2p/connect.h"
#include "p2p/failure.h"
#include "p2p/rendezvous/agreement.h"
#include "p2p/rendezvous/join_job.h"
#include "p2p/rendezvous/share_results.h"
#include "sharding/plan.h"

namespace ringzero {
namespace {

// How long worker 0 waits for what the others have to say of their end.
constexpr std::chrono::seconds kEndLimit(10);

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

absl::StatusOr<std::vector<AgreementSection>> AgreementOf(const RingJob& job) {
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

absl::StatusOr<std::string> Work(const RingJob& job, const JobSeat& seat) {
  RZ_ASSIGN_OR_RETURN(const int64_t wrong, RunProcess(job, {.seat = seat}));
  return absl::StrCat(wrong);
}

absl::StatusOr<JobSeat> Join(const Identity& identity) {
  JoinOptions options;
  if (const char* secret = std::getenv("RINGZERO_JOB_SECRET")) options.secret = secret;
  absl::StatusOr<JobSeat> seat = JoinJob(identity, options);
  if (!seat.ok()) return ReportedBy(identity.self, seat.status());
  return seat;
}

}  // namespace

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

absl::StatusOr<int64_t> RunInSeat(RingJob job, const std::function<absl::Status(RingJob&)>& check) {
  RZ_ASSIGN_OR_RETURN(const JobSeat seat, Join(*job.identity));
  if (absl::Status possible = check(job); !possible.ok()) {
    Disagree(seat, possible);  // the others wait for our statement
    return ReportedBy(seat.self, possible);
  }
  absl::StatusOr<std::vector<AgreementSection>> agreement = AgreementOf(job);
  if (!agreement.ok()) {
    Disagree(seat, agreement.status());
    return agreement.status();
  }
  RZ_RETURN_IF_ERROR(Agree(seat, *agreement));
  const absl::StatusOr<std::string> mine = Work(job, seat);
  const absl::Status shared = ShareResults(seat, mine, kEndLimit).status();
  if (!shared.ok()) return ReportedBy(seat.self, CauseOf(shared));
  int64_t wrong = 0;
  if (!absl::SimpleAtoi(*mine, &wrong)) {
    return absl::InternalError(absl::StrCat("the result is \"", *mine, "\""));
  }
  return wrong;
}

}  // namespace ringzero
