// What `ringzero plan` prints: the plan's numbers, and what they lead to.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/rules/partition.h"
#include "sharding/rules/schedule.h"
#include "sharding/study/render.h"
#include "sharding/study/simulate.h"

namespace ringzero {
namespace {

// "1 stage", "2 stages".
std::string Counted(int count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::string Sharded(int zero_stage) {
  switch (zero_stage) {
    case 0: return "everybody has all masters and updates them from the same sums";
    case 1: return "optimizer states are sharded; parameters come once a version, gradients wait";
    case 2: return "optimizer states and gradients are sharded; parameters come once a version";
    default: return "optimizer states, gradients and parameters are sharded";
  }
}

std::string Clipped(Clipping clipping) {
  switch (clipping) {
    case Clipping::kPerStage: return "every stage by its own norm";
    case Clipping::kPrevious: return "by the global norm of the iteration before";
    default: return "by the global norm; complete sums wait for it in memory of their owners";
  }
}

std::string Head(const Plan& plan) {
  std::string text = absl::StrCat("rule        ", ToString(plan.rule));
  if (plan.rule == Rule::kCdpV2) absl::StrAppend(&text, ", slack ", plan.slack);
  if (plan.strict) absl::StrAppend(&text, ", strict");
  if (plan.warmup_updates > 0)
    absl::StrAppend(&text, "; the first ", Counted(plan.warmup_updates, "update"), " of dp");
  if (plan.predict) absl::StrAppend(&text, ", what would be stale is predicted");
  if (plan.stagger) absl::StrAppend(&text, ", staggered");
  if (plan.retain > 0)
    absl::StrAppend(&text, ", the last ", Counted(plan.retain, "stage"), " retained");
  if (!plan.exchange) absl::StrAppend(&text, ", no exchange (computes only)");
  absl::StrAppend(&text, "\nzero stage  ", plan.zero_stage, ": ", Sharded(plan.zero_stage));
  absl::StrAppend(&text, "\nworkers     N = ", plan.workers,
                  "\nstages      S = ", plan.stage_count(), ", k = ", plan.stages_per_worker(),
                  " per worker\nlaps        K = ", plan.laps,
                  " micro-batches per worker and iteration\nwindow      W = ", plan.window,
                  " slots per channel, ", Counted(plan.pending, "pending gradient"), "\n");
  if (plan.clipping != Clipping::kOff) {
    absl::StrAppend(&text, "clipping    ", ToString(plan.clipping), ": ", Clipped(plan.clipping),
                    "\n");
  }
  if (plan.skips()) {
    absl::StrAppend(&text, "overflows   skipped on every stage: an update waits for the norm",
                    plan.takes_sums() && plan.clipping != Clipping::kExact
                        ? "; complete sums wait for it in memory of their owners\n"
                        : "\n");
  }
  const CollectionPlan& collection = plan.collection;
  if (collection.every > 0 || !collection.versions.empty()) {
    absl::StrAppend(&text, "collected   by worker ", collection.worker.value, ", after");
    if (collection.every > 0) {
      absl::StrAppend(&text, " every ", Counted(collection.every, "update"));
    }
    if (!collection.versions.empty()) {
      absl::StrAppend(&text, collection.every > 0 ? " and update " : " update ",
                      absl::StrJoin(collection.versions, ", "));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Stages(const Plan& plan) {
  size_t name_width = 4;
  for (const StagePlan& stage : plan.stages) name_width = std::max(name_width, stage.name.size());
  const int width = static_cast<int>(std::min<size_t>(name_width, 32));
  std::string text =
      absl::StrFormat("\n%5s  %-*s  %9s  %10s  %10s  %10s  %6s  %5s\n", "stage", width, "name",
                      "layers", "parameters", "sum", "statistics", "cost", "owner");
  const double lap = static_cast<double>(UpdateRule(plan).total());
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StagePlan& stage = plan.stages[j];
    std::string notes;
    if (!stage.has_backward) notes += "  no backward";
    if (stage.has_backward && stage.sum_bytes == 0) notes += "  frozen";
    if (stage.streams_parameters) notes += "  parameters on NVMe";
    if (stage.last_use.value > j) absl::StrAppend(&notes, "  tied to ", stage.last_use.value);
    absl::StrAppendFormat(
        &text, "%5d  %-*s  %9s  %10s  %10s  %10s  %5.1f%%  %5d%s\n", j, width,
        stage.name.substr(0, width), absl::StrCat(stage.first_layer, "-", stage.end_layer - 1),
        SizeText(stage.parameter_bytes), SizeText(stage.sum_bytes), SizeText(stage.buffer_bytes),
        100 * stage.computed_cost() / lap, stage.owner.value, notes);
  }
  return text;
}

std::string Owners(const Plan& plan) {
  if (plan.zero_stage == 0) return "\nowners      everybody, of every stage: nothing is sharded\n";
  const OwnerBytes owners = BytesPerOwner(plan);
  std::string text = absl::StrFormat(
      "\nowners      at most %s of parameters and sums each, %s on average (max/mean %.2f)\n",
      SizeText(static_cast<double>(owners.max)), SizeText(owners.mean),
      owners.mean > 0 ? static_cast<double>(owners.max) / owners.mean : 1.0);
  if (plan.stage_count() < plan.workers) {
    const int idle = plan.workers - plan.stage_count();
    absl::StrAppend(&text, "warning     ", Counted(plan.workers, "worker"), ", but only ",
                    Counted(plan.stage_count(), "stage"), ": ", Counted(idle, "worker"), " own",
                    idle == 1 ? "s" : "", " nothing\n");
  }
  return text;
}

std::string Traffic(const Plan& plan) {
  const WireBytes wire = SteadyWireBytes(plan);
  return absl::StrFormat(
      "stale       %.1f%% of all (worker, stage) pairs read the version before the newest%s%s\n"
      "on the wire %s per iteration, whole ring: parameters %s, gradient sums %s\n",
      100 * StaleShare(plan), plan.laps > 1 ? " in the first lap" : "",
      plan.strict ? absl::StrFormat("; %.1f%% are fresh", 100 - 100 * StaleShare(plan)) : "",
      SizeText(static_cast<double>(wire.parameters + wire.sums)),
      SizeText(static_cast<double>(wire.parameters)), SizeText(static_cast<double>(wire.sums)));
}

// With free messages.
absl::StatusOr<std::string> Simulated(const ShortRun& run) {
  constexpr int kIterations = 8;
  const Plan& plan = run.plan();
  RZ_ASSIGN_OR_RETURN(Simulation simulation, run.Simulate({}));
  // Where iterations are soon alike, the others are as one from the middle.
  int more = kIterations - ShortRun::kIterations;
  if (!simulation.is_steady) {
    RZ_ASSIGN_OR_RETURN(simulation, run.SimulateLonger(kIterations, {}));
    more = 0;
  }
  const WorkerTimes& middle = simulation.iterations[ShortRun::kMiddle];
  const auto waits = [&](int64_t WaitTicks::*cause) {
    double ticks = static_cast<double>(more * middle.waits.*cause);
    for (const WorkerTimes& worker : simulation.workers) ticks += worker.waits.*cause;
    return ticks;
  };
  const double ideal = static_cast<double>(UpdateRule(plan).total()) * plan.laps;
  const double makespan =
      static_cast<double>(simulation.makespan_ticks) + more * simulation.steady_iteration_ticks;
  const double all = makespan * plan.workers / 100;
  std::string text = absl::StrFormat(
      "simulated   with free messages: an iteration takes %.3f of its computing, %d of them with "
      "start "
      "and end %.3f\n",
      simulation.steady_iteration_ticks / ideal, kIterations, makespan / (ideal * kIterations));
  absl::StrAppendFormat(
      &text, "            waits: parameters %.1f%%, sums %.1f%%, updates %.1f%%, tokens %.1f%%\n",
      waits(&WaitTicks::parameters) / all, waits(&WaitTicks::gradient_sums) / all,
      waits(&WaitTicks::update) / all, waits(&WaitTicks::token) / all);
  absl::StrAppendFormat(
      &text,
      "activations at most those of %.2f micro-batches at once, all workers together (data "
      "parallelism: %d)\n",
      static_cast<double>(simulation.peak_activations) / plan.stage_count(), plan.workers);
  return text;
}

}  // namespace

std::string SizeText(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, units[unit]);
}

absl::StatusOr<std::string> DescribePlan(const Plan& resolved, const PlanProof& proof,
                                         const ShortRun& run) {
  if (!proof.Covers(resolved)) return absl::InvalidArgumentError("the proof is of another plan");
  RZ_ASSIGN_OR_RETURN(const std::string simulated, Simulated(run));
  return absl::StrCat(Head(resolved), Stages(resolved), Owners(resolved), Traffic(resolved),
                      simulated);
}

}  // namespace ringzero
