// CostProfile: what a model's layers take on a machine, in nanoseconds: measured in a short run, or
// estimated.
//
//   RZ_ASSIGN_OR_RETURN(const SimulationOptions speed, TicksOf(profile, plan));
//   RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(plan, speed));
//   step.seconds;  step.waits.update;  step.hidden_share;
//
// It steers simulations only, never a run: what a run does comes from the plan. By layer, so that
// it holds for any number of stages and workers. Pure.
#ifndef RINGZERO_SHARDING_STUDY_COST_PROFILE_H_
#define RINGZERO_SHARDING_STUDY_COST_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/study/simulate.h"

namespace ringzero {

struct LayerTimes {
  std::string name;
  StageTicks nanoseconds;  // of processor time
};

struct CostProfile {
  int micro_batch = 1;  // samples
  int threads = 1;      // torch's, of each worker
  // That computed at the same time when it was measured, and so shared caches and memory; 0: it is
  // an estimate.
  int workers = 0;
  std::vector<LayerTimes> layers;   // of the whole model, in its order
  int64_t lap_nanoseconds = 0;      // beside the layers, for each micro-batch
  int64_t message_nanoseconds = 0;  // for each message, all threads of sender and receiver
};

// In ticks of a nanosecond, without cores. InvalidArgument if the plan's stages do not end with the
// profile's last layer.
absl::StatusOr<SimulationOptions> TicksOf(const CostProfile& profile, const Plan& plan);

// Of large products and of copies (bytes read and written).
struct MachineSpeed {
  double flops_per_second = 1;
  double bytes_per_second = 1;
};

// Without a profile: the plan's costs as FLOPs, and the bytes that adds and updates touch.
// `moment_bytes`: by stage, what its optimizer keeps.
SimulationOptions EstimateTicks(const Plan& plan, const std::vector<int64_t>& moment_bytes,
                                const MachineSpeed& machine);

// All workers share so many cores: whole ones, or less than one, where computing takes longer.
void ShareCores(double cores, SimulationOptions& speed);

// An iteration in the middle of a long run.
struct StepForecast {
  double seconds = 0;
  // Shares of the step, mean of all workers. Waits: parameters, gradient sums, …
  double computing = 0;
  struct {
    double parameters = 0, gradient_sums = 0, update = 0, token = 0;
  } waits;
  // Of the time that messages, adds and updates take, the part for which no computing waited;
  // 1 if there is nothing of the kind.
  double hidden_share = 1;
  std::vector<ChannelBytes> channels;  // of one iteration
};

// Simulates `plan` without its evaluations and collections, for a few iterations whatever it says.
// Errors of Simulate.
absl::StatusOr<StepForecast> ForecastStep(const Plan& plan, const SimulationOptions& speed);
absl::StatusOr<StepForecast> ForecastStep(const ShortRun& run, const SimulationOptions& speed);

// A few lines and a table of channels with the rate that each asks for.
std::string DescribeStep(const StepForecast& step);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_COST_PROFILE_H_
