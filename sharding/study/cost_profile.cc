// From layers to stages, and from a simulated run to one iteration of it.
#include "sharding/study/cost_profile.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "sharding/study/render.h"

namespace ringzero {
namespace {

// Messages, adds and updates of an iteration, each from its begin to its end, as if nothing else
// went on.
double ExchangeTicks(const Plan& plan, const SimulationOptions& speed,
                     const std::vector<ChannelBytes>& channels) {
  double ticks = 0;
  for (const ChannelBytes& channel : channels) {
    ticks += static_cast<double>(channel.messages) *
                 static_cast<double>(speed.latency_ticks + speed.message_ticks) +
             static_cast<double>(channel.link_ticks);
  }
  for (int j = 0; j < plan.stage_count(); ++j) {
    if (!plan.exchange || plan.stages[j].sum_bytes == 0) continue;
    const StageTicks stage = speed.stage_ticks.empty() ? StageTicks{} : speed.stage_ticks[j];
    const double adds = static_cast<double>(plan.workers) * plan.laps;
    const double updates = plan.spreads_sums() ? plan.workers : 1;
    ticks += adds * static_cast<double>(stage.add + speed.add_ticks) +
             updates * static_cast<double>(stage.update + speed.update_ticks);
  }
  return ticks;
}

}  // namespace

absl::StatusOr<SimulationOptions> TicksOf(const CostProfile& profile, const Plan& plan) {
  const int layers = plan.stages.empty() ? 0 : plan.stages.back().end_layer;
  if (static_cast<int>(profile.layers.size()) != layers) {
    return InvalidArgument("wanted the times of ", layers, " layers, found ",
                           profile.layers.size());
  }
  SimulationOptions speed{.message_ticks = profile.message_nanoseconds,
                          .lap_ticks = profile.lap_nanoseconds};
  for (const StagePlan& stage : plan.stages) {
    StageTicks ticks;
    for (int i = stage.first_layer; i < stage.end_layer; ++i) {
      for (const auto part : kStageParts) ticks.*part += profile.layers[i].nanoseconds.*part;
    }
    speed.stage_ticks.push_back(ticks);
  }
  return speed;
}

SimulationOptions EstimateTicks(const Plan& plan, const std::vector<int64_t>& moment_bytes,
                                const MachineSpeed& machine) {
  const auto nanoseconds = [](double amount, double per_second) {
    return std::max<int64_t>(1, std::llround(1e9 * amount / per_second));
  };
  SimulationOptions speed;
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StagePlan& stage = plan.stages[j];
    StageTicks ticks{
        .forward = nanoseconds(static_cast<double>(stage.forward_cost), machine.flops_per_second),
        .backward =
            nanoseconds(static_cast<double>(stage.backward_cost), machine.flops_per_second)};
    if (stage.sum_bytes > 0) {
      // An add reads two and writes one; an update reads sum and parameters, writes these, and
      // reads and writes the moments.
      const auto sum = static_cast<double>(stage.sum_bytes);
      const auto parameters = static_cast<double>(stage.parameter_bytes);
      const auto moments = static_cast<double>(moment_bytes[j]);
      ticks.add = nanoseconds(3 * sum, machine.bytes_per_second);
      ticks.update = nanoseconds(sum + 2 * parameters + 2 * moments, machine.bytes_per_second);
    }
    speed.stage_ticks.push_back(ticks);
  }
  return speed;
}

void ShareCores(double cores, SimulationOptions& speed) {
  speed.cores = std::max(1, static_cast<int>(cores));
  if (cores >= 1) return;
  const auto stretch = [cores](int64_t& ticks) {
    ticks = std::llround(static_cast<double>(ticks) / cores);
  };
  for (int64_t* const ticks :
       {&speed.message_ticks, &speed.lap_ticks, &speed.add_ticks, &speed.update_ticks}) {
    stretch(*ticks);
  }
  for (StageTicks& stage : speed.stage_ticks) {
    for (const auto part : kStageParts) stretch(stage.*part);
  }
}

absl::StatusOr<StepForecast> ForecastStep(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const ShortRun run, ShortRun::Make(plan));
  return ForecastStep(run, speed);
}

absl::StatusOr<StepForecast> ForecastStep(const ShortRun& short_run,
                                          const SimulationOptions& speed) {
  const Plan& plan = short_run.plan();
  // Begin and end differ. Where iterations are soon alike, one from the middle of a short run does.
  RZ_ASSIGN_OR_RETURN(Simulation run, short_run.Simulate(speed));
  int first = ShortRun::kMiddle, count = 1;
  if (!run.is_steady) {
    constexpr int kLong = 12;
    RZ_ASSIGN_OR_RETURN(run, short_run.SimulateLonger(kLong, speed));
    first = count = kLong / 2 - 1;
  }
  const double workers = static_cast<double>(count) * plan.workers;
  const auto ends = [&](int t) { return static_cast<double>(run.iterations[t].end_ticks); };
  const double step = (ends(first + count - 1) - ends(first - 1)) / workers;
  StepForecast forecast{.seconds = 1e-9 * step};
  for (const ChannelBytes& channel : run.channels) {
    if (channel.iteration == first) forecast.channels.push_back(channel);
  }
  if (step <= 0) return forecast;
  const auto share = [&](auto ticks_of) {
    double ticks = 0;
    for (int t = first; t < first + count; ++t) {
      ticks += static_cast<double>(ticks_of(run.iterations[t]));
    }
    return ticks / workers / step;
  };
  forecast.computing = share([](const WorkerTimes& times) { return times.busy_ticks; });
  const auto waits_for = [&](int64_t WaitTicks::*cause) {
    return share([cause](const WorkerTimes& times) { return times.waits.*cause; });
  };
  forecast.waits = {waits_for(&WaitTicks::parameters), waits_for(&WaitTicks::gradient_sums),
                    waits_for(&WaitTicks::update), waits_for(&WaitTicks::token)};
  const double exchange = ExchangeTicks(plan, speed, forecast.channels);
  const auto& waits = forecast.waits;
  const double exposed =
      (waits.parameters + waits.gradient_sums + waits.update) * step * plan.workers;
  if (exchange > 0) forecast.hidden_share = std::clamp(1 - exposed / exchange, 0.0, 1.0);
  return forecast;
}

std::string DescribeStep(const StepForecast& step) {
  std::string text = absl::StrFormat(
      "step        %.4g ms: computing %.1f%%, waits: parameters %.1f%%, sums %.1f%%, updates "
      "%.1f%%, tokens %.1f%%\n"
      "hidden      %.1f%% of the time that messages, adds and updates take\n",
      1e3 * step.seconds, 100 * step.computing, 100 * step.waits.parameters,
      100 * step.waits.gradient_sums, 100 * step.waits.update, 100 * step.waits.token,
      100 * step.hidden_share);
  absl::StrAppendFormat(&text, "\n%-12s  %-10s  %8s  %12s  %12s\n", "channel", "copy", "messages",
                        "bytes", "asked for");
  for (const ChannelBytes& channel : step.channels) {
    const double bytes = static_cast<double>(channel.bytes);
    absl::StrAppendFormat(
        &text, "%-12s  %-10s  %8d  %12s  %12s\n", ToString(channel.channel),
        channel.copy == Copy::kNone ? "" : ToString(channel.copy), channel.messages,
        SizeText(bytes),
        step.seconds > 0 ? absl::StrCat(SizeText(bytes / step.seconds), "/s") : "");
  }
  return text;
}

}  // namespace ringzero
