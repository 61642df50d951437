// From layers to stages, and from a simulated run to one iteration of it.
#include "sharding/cost_profile.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "sharding/render.h"

namespace ringzero {
namespace {

// What a worker does until the end of a run of so many iterations.
struct Spent {
  double makespan = 0, computing = 0, exchange = 0;
  WaitTicks waits;
  std::vector<int64_t> ends;           // by iteration, of all workers' laps together
  std::vector<ChannelBytes> channels;  // of an iteration in the middle

  // Whether the last iterations took equally long.
  bool IsSteady() const {
    constexpr size_t kAlike = 3;
    const size_t count = ends.size();
    if (count <= kAlike) return false;
    const int64_t last = ends[count - 1] - ends[count - 2];
    for (size_t i = 2; i <= kAlike; ++i) {
      if (ends[count - i] - ends[count - i - 1] != last) return false;
    }
    return true;
  }
};

// Messages, adds and updates, each from its begin to its end, as if nothing else went on.
double ExchangeTicks(const Plan& plan, const SimulationOptions& speed, const Simulation& run) {
  double ticks = 0;
  for (const ChannelBytes& channel : run.channels) {
    ticks += static_cast<double>(channel.messages) *
             static_cast<double>(speed.latency_ticks + speed.message_ticks);
  }
  for (int j = 0; j < plan.stage_count(); ++j) {
    if (!plan.exchange || plan.stages[j].sum_bytes == 0) continue;
    const StageTicks stage = speed.stage_ticks.empty() ? StageTicks{} : speed.stage_ticks[j];
    const double adds = static_cast<double>(plan.workers) * plan.laps;
    const double updates = plan.spreads_sums() ? plan.workers : 1;
    ticks += plan.iterations * (adds * static_cast<double>(stage.add + speed.add_ticks) +
                                updates * static_cast<double>(stage.update + speed.update_ticks));
  }
  return ticks;
}

absl::StatusOr<Spent> Run(const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const Simulation run, Simulate(plan, speed));
  Spent spent;
  for (const WorkerTimes& worker : run.workers) {
    spent.makespan += static_cast<double>(worker.end_ticks) / plan.workers;
    spent.computing += static_cast<double>(worker.busy_ticks) / plan.workers;
    spent.waits.parameters += worker.waits.parameters;
    spent.waits.gradient_sums += worker.waits.gradient_sums;
    spent.waits.update += worker.waits.update;
    spent.waits.token += worker.waits.token;
  }
  spent.ends.resize(static_cast<size_t>(plan.iterations));
  for (const ComputedOp& computed : run.computed) {
    const Op& op = computed.op;
    if (op.kind == OpKind::kEnd && op.copy == Copy::kNone && op.lap.value == plan.laps - 1) {
      spent.ends[static_cast<size_t>(op.iteration.value)] += computed.end_tick;
    }
  }
  spent.exchange = ExchangeTicks(plan, speed, run);
  for (const ChannelBytes& channel : run.channels) {
    if (channel.iteration == plan.iterations / 2) spent.channels.push_back(channel);
  }
  return spent;
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
      const StageTicks& layer = profile.layers[i].nanoseconds;
      ticks.forward += layer.forward;
      ticks.backward += layer.backward;
      ticks.add += layer.add;
      ticks.update += layer.update;
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

absl::StatusOr<StepForecast> ForecastStep(const Plan& plan, const SimulationOptions& speed) {
  // What a long run takes more than a short one: begin and end are alike in both. Where iterations
  // are soon alike, short ones do.
  constexpr int kShort = 3, kMiddle = 6, kLong = 12;
  const auto run = [&](int iterations) {
    Plan some = plan;
    some.evaluation = {};
    some.collection = {};
    some.iterations = iterations;
    return Run(some, speed);
  };
  RZ_ASSIGN_OR_RETURN(const Spent middle, run(kMiddle));
  const bool steady = middle.IsSteady();
  RZ_ASSIGN_OR_RETURN(const Spent other, run(steady ? kShort : kLong));
  const Spent& less = steady ? other : middle;
  const Spent& more = steady ? middle : other;
  const double step = more.makespan - less.makespan;
  const int iterations = steady ? kMiddle - kShort : kLong - kMiddle;
  StepForecast forecast{.seconds = 1e-9 * step / iterations, .channels = more.channels};
  if (step <= 0) return forecast;
  const auto share = [&](int64_t WaitTicks::*cause) {
    const double ticks = static_cast<double>(more.waits.*cause - less.waits.*cause);
    return std::max(0.0, ticks / plan.workers / step);
  };
  forecast.computing = (more.computing - less.computing) / step;
  forecast.waits = {share(&WaitTicks::parameters), share(&WaitTicks::gradient_sums),
                    share(&WaitTicks::update), share(&WaitTicks::token)};
  const double exchange = more.exchange - less.exchange;
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
