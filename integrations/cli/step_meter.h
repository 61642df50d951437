// Times a worker's iterations from the ends of its laps: seconds, waits, CPU time and faults. The
// calling thread is the computing one.
//
//   StepMeter meter({.iterations = T, .laps = K}, engine.stats());
//   meter.EndLap(lap, engine.stats());          // after every micro-batch, evaluations too
//   meter.steps();
//
// The first iterations are left out (all count where there are no more). An evaluation between two
// iterations counts to neither. One thread.
#ifndef RINGZERO_INTEGRATIONS_CLI_STEP_METER_H_
#define RINGZERO_INTEGRATIONS_CLI_STEP_METER_H_

#include <chrono>
#include <vector>

#include "integrations/cli/resources.h"
#include "zero/engine.h"

namespace ringzero {

// Where a worker's time went, in seconds.
struct WaitSeconds {
  double parameters = 0;
  double gradient_sums = 0;
  double update = 0;
  double other = 0;
  double sum() const { return parameters + gradient_sums + update + other; }
};
WaitSeconds WaitsOf(const EngineStats& stats);

struct MeasuredSteps {
  std::vector<double> seconds;  // one per measured iteration
  WaitSeconds waits;            // in all of them together
  double on_core_seconds = 0;   // likewise: the calling thread was on a processor
  ResourceUse resources;        // of the whole process, likewise
};

struct StepMeterOptions {
  int iterations = 0;
  int laps = 1;
  int left_out = 10;
};

class StepMeter {
 public:
  StepMeter(const StepMeterOptions& options, const EngineStats& stats);
  void EndLap(const LapTask& lap, const EngineStats& stats);
  const MeasuredSteps& steps() const { return steps_; }

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    WaitSeconds waits;
    double on_core_seconds = 0;
    ResourceUse resources;
  };
  static Mark Now(const EngineStats& stats);

  const StepMeterOptions options_;
  Mark last_;  // the end of the iteration, or of the evaluation, before
  MeasuredSteps steps_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_STEP_METER_H_
