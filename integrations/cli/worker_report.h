// WorkerReport: what one worker knows of a finished run; travels to the parent as JSON.
//
//   std::string text = ToJson(report);      // in the worker
//   WorkerReport report = FromJson(text);   // in the parent
#ifndef RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
#define RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/cli/provenance.h"
#include "integrations/cli/run_log.h"
#include "integrations/cli/step_meter.h"
#include "sharding/cost_profile.h"
#include "sharding/memory_forecast.h"

namespace ringzero {

// Live tensors on a worker's computing thread, without gradients that it has handed over.
struct ActivationPoint {
  double seconds = 0;  // of the host's monotonic clock, which all its processes share
  int64_t bytes = 0;   // at that moment
  int64_t peak = 0;    // since the point before
};

// TrainTask::costs_from.
struct MeasuredCosts {
  std::vector<LayerTimes> stages;
  int64_t lap_nanoseconds = 0;    // of each micro-batch, beside the stages
  int64_t other_nanoseconds = 0;  // of the process, for the whole of an iteration, beside all these
  int messages = 0;               // that it sends in an iteration
};

// What was to be written and is not, or not there: by what it is ("metrics", "trace"), why.
using NotWritten = std::map<std::string, std::string>;

struct WorkerReport {
  int worker = 0;
  WorkerPlace place;
  bool interrupted = false;
  NotWritten not_written;
  // Of the measured iterations.
  int measured = 0;
  double step_median = 0, step_min = 0, step_max = 0, step_mean = 0;  // seconds
  WaitSeconds waits;           // all measured iterations together
  double on_core_seconds = 0;  // likewise: the computing thread was on a processor
  ResourceUse resources;       // of the process; 0 where another worker reports the same process
  double pss_peak_mib = 0;
  // Of the whole run.
  uint64_t training_bytes = 0;  // parameters and gradient sums sent for training
  uint64_t other_bytes = 0;
  uint64_t copied_bytes = 0;
  int skipped_updates = 0;                   // of the whole ring: sums were not finite
  double loss_scale = 1;                     // as it is at the end
  MemoryBytes memory;                        // allocated, each category at its most
  std::vector<ActivationPoint> activations;  // cyclic.track_activations
  std::optional<MeasuredCosts> costs;
  // Worker 0 only.
  MemoryBytes forecast;  // of the whole host, by the plan
  int64_t parameters = 0;
  int iterations = 0;                   // whose loss is known
  std::string dump_trouble;             // why --dump-parameters is not there, and where it is
  double lr = 0;                        // of the last iteration; these four as the metrics' names
  std::optional<double> gradient_norm;  // of it; nothing where gradients do not travel
  double pss_mib = 0;                   // of the whole ring, as last told
  std::optional<double> mfu;            // of the measured iterations; nothing: FLOPs not known
  std::optional<double> first_loss, last_loss;
  std::vector<EvaluationResult> evaluations;
  std::string parameters_sha256;
};

std::string ToJson(const WorkerReport& report);
// Internal if it is not such a text.
absl::StatusOr<WorkerReport> FromJson(const std::string& text);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
