// Differences between the ends of iterations.
#include "integrations/cli/step_meter.h"

#include "integrations/sight/pace.h"

namespace ringzero {

WaitSeconds WaitsOf(const EngineStats& stats) {
  return {.parameters = stats.wait_parameters_seconds,
          .gradient_sums = stats.wait_gradient_sums_seconds,
          .update = stats.wait_update_seconds,
          .other = stats.wait_other_seconds};
}

StepMeter::StepMeter(const StepMeterOptions& options, const EngineStats& stats)
    : options_(options), last_(Now(stats)) {}

StepMeter::Mark StepMeter::Now(const EngineStats& stats) {
  return {.time = std::chrono::steady_clock::now(),
          .waits = WaitsOf(stats),
          .on_core_seconds = ThreadCpuSeconds(),
          .resources = ResourcesNow()};
}

void StepMeter::EndLap(const LapTask& lap, const EngineStats& stats) {
  const bool trained = lap.kind == LapTask::Kind::kTrain;
  if (trained && lap.lap.value + 1 < options_.laps) return;
  const Mark now = Now(stats);
  const int left_out = options_.iterations > options_.left_out ? options_.left_out : 0;
  if (trained && lap.iteration.value >= left_out) {
    steps_.seconds.push_back(std::chrono::duration<double>(now.time - last_.time).count());
    steps_.waits.parameters += now.waits.parameters - last_.waits.parameters;
    steps_.waits.gradient_sums += now.waits.gradient_sums - last_.waits.gradient_sums;
    steps_.waits.update += now.waits.update - last_.waits.update;
    steps_.waits.other += now.waits.other - last_.waits.other;
    steps_.on_core_seconds += now.on_core_seconds - last_.on_core_seconds;
    const ResourceUse used = now.resources - last_.resources;
    steps_.resources.cpu_seconds += used.cpu_seconds;
    steps_.resources.minor_faults += used.minor_faults;
  }
  last_ = now;
}

}  // namespace ringzero
