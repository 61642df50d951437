// A profile or an estimate, and Simulate on the cores that there are.
#include "integrations/cli/plan_times.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/cli/cores.h"
#include "integrations/cli/run_log.h"
#include "integrations/torch/machine_speed.h"
#include "sharding/free_window.h"
#include "sharding/render.h"
#include "zero/optimizer_state.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

struct Source {
  SimulationOptions speed;
  std::string words;
};

absl::StatusOr<Source> FromProfile(const PlanTimesRequest& request) {
  const absl::Status fits = CheckProfile(*request.profile, request.config, request.run.model);
  if (!fits.ok()) return Annotate(fits, request.profile_path);
  const CostProfile& profile = request.profile->profile;
  Source source;
  RZ_ASSIGN_OR_RETURN(source.speed, TicksOf(profile, request.run.planned.plan));
  source.words =
      absl::StrCat("a profile of ", profile.workers, " worker",
                   profile.workers == 1 ? "" : "s at a time (", request.profile_path, ")");
  return source;
}

Source FromCounts(const PlanTimesRequest& request) {
  const MachineSpeed machine = MeasureSpeed();
  return {.speed = EstimateTicks(request.run.planned.plan,
                                 MomentBytes(request.config.optimizer, request.run.planned.layouts),
                                 machine),
          .words = absl::StrFormat(
              "FLOPs at %.1f GFLOP/s and bytes at %.1f GB/s, as large products and copies run "
              "here; small ones are slower, and messages are free: --profile FILE measures",
              1e-9 * machine.flops_per_second, 1e-9 * machine.bytes_per_second)};
}

// Simulate shares whole cores. Less than one makes all that computes take longer.
void UseCores(double cores, SimulationOptions& speed) {
  speed.cores = std::max(1, static_cast<int>(cores));
  if (cores >= 1) return;
  const auto stretch = [&](int64_t& ticks) {
    ticks = std::llround(static_cast<double>(ticks) / cores);
  };
  for (StageTicks& stage : speed.stage_ticks) {
    for (int64_t* const ticks : {&stage.forward, &stage.backward, &stage.add, &stage.update}) {
      stretch(*ticks);
    }
  }
  for (int64_t* const ticks :
       {&speed.message_ticks, &speed.lap_ticks, &speed.add_ticks, &speed.update_ticks}) {
    stretch(*ticks);
  }
}

// Where slots hold bytes: what the window of slots that hold none would give here, and cost.
absl::StatusOr<std::string> DescribeLargerWindow(const PlanTimesRequest& request) {
  const bool chosen = request.config.cyclic.window == 0;
  if (!chosen || PoolKindOf(request.config, request.hosts) != PoolKind::kReceived) return "";
  const Plan& plan = request.run.planned.plan;
  Plan larger = plan;
  larger.window = 0;
  RZ_ASSIGN_OR_RETURN(larger.window, ChooseFreeWindow(larger));
  if (larger.window <= plan.window) return "";
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(plan, {}));
  RZ_ASSIGN_OR_RETURN(const StepForecast shorter, ForecastStep(larger, {}));
  int64_t most = 0;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(const ReceivedBytes now, ReceivedUse(plan, WorkerId(w), kMetricsCount));
    RZ_ASSIGN_OR_RETURN(const ReceivedBytes then, ReceivedUse(larger, WorkerId(w), kMetricsCount));
    const size_t more = then.parameters + then.sums - now.parameters - now.sums;
    most = std::max(most, static_cast<int64_t>(more));
  }
  return absl::StrFormat(
      "window      %d: with a core for each worker a step takes %.2f of its computing; with "
      "cyclic.window=%d it takes %.2f, and up to %s more received memory per worker\n",
      plan.window, 1 / step.computing, larger.window, 1 / shorter.computing,
      SizeText(static_cast<double>(most)));
}

}  // namespace

absl::StatusOr<PlanTimes> PredictTimes(const PlanTimesRequest& request) {
  Source source;
  if (request.profile.has_value()) {
    RZ_ASSIGN_OR_RETURN(source, FromProfile(request));
  } else {
    source = FromCounts(request);
  }
  const double cores = UsableCores();
  UseCores(cores * request.hosts / request.config.cyclic.threads, source.speed);
  RZ_ASSIGN_OR_RETURN(const StepForecast step,
                      ForecastStep(request.run.planned.plan, source.speed));
  RZ_ASSIGN_OR_RETURN(const std::string window, DescribeLargerWindow(request));
  const std::string hosts =
      request.hosts == 1 ? "" : absl::StrCat(" of each of ", request.hosts, " hosts like this one");
  return PlanTimes{.speed = source.speed,
                   .text = absl::StrCat("\ntimes       from ", source.words, "; ", CoresText(cores),
                                        hosts, "\n", DescribeStep(step), window)};
}

}  // namespace ringzero
