// A plan simulated with its disk and without, and again as it could be.
#include "sharding/study/disk_verdict.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "sharding/program/operands.h"
#include "sharding/study/cost_profile.h"
#include "sharding/study/render.h"

namespace ringzero {
namespace {

// In an iteration, one way, of the worker that streams most.
int64_t MostStreamed(const Plan& plan) {
  int64_t most = 0;
  for (int w = 0; w < plan.workers; ++w) {
    int64_t bytes = 0;
    for (int j = 0; j < plan.stage_count(); ++j) {
      if (plan.has_masters(WorkerId(w), StageId(j))) bytes += plan.stages[j].streamed_bytes;
    }
    most = std::max(most, bytes);
  }
  return most;
}

// In an iteration, by the host that moves most.
struct Moved {
  int64_t read = 0, states = 0, versions = 0;  // the last two are written
  int64_t written() const { return states + versions; }
  int64_t total() const { return read + written(); }
};
Moved MostMoved(const ShortRun& run, const LinkTicks& links) {
  const std::vector<int> hosts = links.HostsOf(run.plan().workers);
  std::map<int, Moved> moved;
  for (int i = 0; i < run.ring().count(); ++i) {
    const RingOp& op = run.ring().ops[i];
    if (op.iteration.value != ShortRun::kMiddle || op.stage == kNoStage) continue;
    const StagePlan& stage = run.plan().stage(op.stage);
    Moved& host = moved[hosts[op.worker]];
    if (op.kind == OpKind::kFetch) host.read += stage.streamed_bytes;
    if (op.kind == OpKind::kStore) host.states += stage.streamed_bytes;
    if (!MovesVersion(op)) continue;
    (op.kind == OpKind::kLoad ? host.read : host.versions) += stage.parameter_bytes;
  }
  Moved most;
  for (const auto& [host, each] : moved) most = each.total() > most.total() ? each : most;
  return most;
}

double WaitsOf(const StepForecast& step) {
  const auto& waits = step.waits;
  return waits.parameters + waits.gradient_sums + waits.update + waits.token;
}

// What a verdict says of times and bytes.
absl::StatusOr<DiskVerdict> TimeSteps(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const ShortRun run, ShortRun::Make(plan));
  SimulationOptions in_memory = speed;
  in_memory.disk = {};
  RZ_ASSIGN_OR_RETURN(const StepForecast best, ForecastStep(run, in_memory));
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(run, speed));
  const Moved moved = MostMoved(run, speed.links);
  return DiskVerdict{.needs = static_cast<double>(moved.total()) / best.seconds,
                     .has = 1e9 * speed.disk.at_once / speed.disk.per_byte,
                     .step_in_memory = best.seconds,
                     .step = step.seconds,
                     .waits = WaitsOf(step) - WaitsOf(best),
                     .written_bytes = moved.written(),
                     .state_bytes = moved.states};
}

// Changes that hide the disk, the cheapest of each kind.
absl::StatusOr<std::vector<std::string>> FindWaysOut(const Plan& plan, const DiskVerdict& verdict,
                                                     const SimulationOptions& speed) {
  std::vector<std::string> ways;
  // Whether it is one.
  const auto is_way = [&](const std::string& words, auto change) -> absl::StatusOr<bool> {
    Plan changed = plan;
    change(changed);
    changed.window = 0;  // of its own
    RZ_ASSIGN_OR_RETURN(changed.window, ChooseFreeWindow(changed));
    RZ_ASSIGN_OR_RETURN(const DiskVerdict steps, TimeSteps(changed, speed));
    if (steps.hidden()) ways.push_back(words);
    return steps.hidden();
  };
  bool found = false;
  // As many micro-batches as the disk needs time for, or more: updates come together behind the
  // last one, however many there are.
  const double most = plan.any_streams_parameters() ? 16 : 256;  // each lap reads parameters again
  const double enough = std::ceil(plan.laps * verdict.step / verdict.step_in_memory);
  for (double laps = std::max(enough, plan.laps + 1.0); laps <= most && !found; laps *= 1.5) {
    const int whole = static_cast<int>(laps);
    RZ_ASSIGN_OR_RETURN(found, is_way(absl::StrCat("gradient_accumulation_steps ", whole),
                                      [&](Plan& other) { other.laps = whole; }));
  }
  if (plan.rule != Rule::kCdpV1) {
    RZ_RETURN_IF_ERROR(is_way("cyclic.rule cdp_v1", [](Plan& other) {
                         other.rule = Rule::kCdpV1;
                         other.strict = false;
                         other.collection = {};  // of masters that stream (masters_may_stream)
                       }).status());
  }
  if (plan.any_streams_parameters()) {
    RZ_RETURN_IF_ERROR(is_way("zero_optimization.offload_param.device none", [](Plan& other) {
                         for (StagePlan& stage : other.stages) stage.streams_parameters = false;
                       }).status());
  }
  found = false;
  for (int64_t staging = 2 * plan.staging_bytes; staging < MostStreamed(plan) && !found;
       staging *= 2) {
    const std::string words =
        absl::StrFormat("cyclic.offload.staging \"%s\" (%s more memory per worker)",
                        SizeText(static_cast<double>(staging)),
                        SizeText(static_cast<double>(staging - plan.staging_bytes)));
    RZ_ASSIGN_OR_RETURN(found, is_way(words, [&](Plan& other) { other.staging_bytes = staging; }));
  }
  constexpr int kParts = 10;
  found = !plan.any_streams();
  for (int part = kParts - 1; part > 0 && !found; --part) {
    const int64_t kept = verdict.state_bytes * (kParts - part) / kParts;
    const std::string words =
        absl::StrFormat("%d %% of these states in memory (%s more per host)",
                        100 * (kParts - part) / kParts, SizeText(static_cast<double>(kept)));
    RZ_ASSIGN_OR_RETURN(found, is_way(words, [&](Plan& other) {
                          for (StagePlan& stage : other.stages) {
                            stage.streamed_bytes = stage.streamed_bytes * part / kParts;
                          }
                        }));
  }
  return ways;
}

}  // namespace

absl::StatusOr<DiskVerdict> JudgeDisk(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(DiskVerdict verdict, TimeSteps(plan, speed));
  if (verdict.hidden()) return verdict;
  RZ_ASSIGN_OR_RETURN(verdict.ways_out, FindWaysOut(plan, verdict, speed));
  return verdict;
}

std::string DescribeDisk(const DiskVerdict& verdict, std::optional<double> endurance) {
  const double written = static_cast<double>(verdict.written_bytes);
  const double a_day = written / verdict.step * 24 * 60 * 60;
  std::string text =
      absl::StrFormat("disk        needs %.2f GB/s both ways, gives %.2f: ", 1e-9 * verdict.needs,
                      1e-9 * verdict.has);
  if (verdict.hidden()) {
    absl::StrAppendFormat(&text, "hidden, %.2f to spare",
                          1e-9 * std::max(0.0, verdict.has - verdict.needs));
  } else {
    absl::StrAppend(&text, "not hidden");
  }
  if (verdict.is_longer()) {
    absl::StrAppendFormat(&text, ": a step takes %.3g s instead of %.3g", verdict.step,
                          verdict.step_in_memory);
  }
  if (verdict.hidden() && verdict.is_longer()) {
    absl::StrAppend(&text, ", for the processor has more to do");
  }
  absl::StrAppendFormat(&text, "; %.3g GB written per iteration, %.3g TB a day", 1e-9 * written,
                        1e-12 * a_day);
  if (endurance.has_value()) {
    absl::StrAppendFormat(&text, ": the disk's %.4g TB last %.4g days", 1e-12 * *endurance,
                          *endurance / a_day);
  }
  if (!verdict.hidden()) {
    const std::string ways = absl::StrJoin(verdict.ways_out, ", or ");
    absl::StrAppend(&text, "\n            what would hide it: ",
                    ways.empty() ? "none of what was tried" : ways);
  }
  return text + "\n";
}

absl::StatusOr<int64_t> ChooseStaging(const Plan& plan) {
  constexpr double kToSpare = 1.25;
  const int64_t streamed = MostStreamed(plan);
  const int64_t most = std::max(kLeastStaging, streamed / 2);
  // Of one stage while the next one comes. (Less makes runs wait whose simulation does not.)
  int64_t two = 0;
  for (const StagePlan& stage : plan.stages) two = std::max(two, 2 * stage.streamed_bytes);
  Plan tried = plan;
  for (StagePlan& stage : tried.stages) stage.streams_parameters = false;
  tried.staging_bytes = std::clamp(two, kLeastStaging, most);
  RZ_ASSIGN_OR_RETURN(tried.window, ChooseWindow(tried));
  RZ_ASSIGN_OR_RETURN(const StepForecast best, ForecastStep(tried, {}));
  const double ticks = 1e9 * best.seconds;
  const DiskTicks disk{.per_byte = ticks / kToSpare / (2.0 * static_cast<double>(streamed))};
  while (tried.staging_bytes < most) {
    RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(tried, {.disk = disk}));
    if (step.seconds <= 1.01 * best.seconds) break;
    tried.staging_bytes = std::min(most, 2 * tried.staging_bytes);
  }
  return tried.staging_bytes;
}

}  // namespace ringzero
