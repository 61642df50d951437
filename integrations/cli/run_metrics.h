// A run's numbers: iteration by iteration, into the folder of --metrics and wherever the
// configuration's tensorboard and csv_monitor want them (at worker 0); and at the end, as a summary.
//
//   RZ_ASSIGN_OR_RETURN(auto metrics, RunMetrics::Create({.folder = "run", .config = config, …}));
//   RZ_RETURN_IF_ERROR(metrics->Write(result, lr));      // every iteration
//   const Summary summary = Summarize(info, reports);    // where the workers' reports meet
//
// folder/run.json (what the run is), metrics.jsonl, tensorboard/, csv/ (DeepSpeed's csv_monitor),
// and flight/ (each worker's last events). `ringzero report folder` shows them. What makes the run
// again is there, too (provenance.h). One thread.
#ifndef RINGZERO_INTEGRATIONS_CLI_RUN_METRICS_H_
#define RINGZERO_INTEGRATIONS_CLI_RUN_METRICS_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/cli/provenance.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/metrics.h"
#include "sharding/memory_forecast.h"
#include "sharding/plan.h"
#include "zero/config/config.h"

namespace ringzero {

struct RunMetricsOptions {
  std::string folder;    // of MakeMetricsFolder; empty: none
  const Config& config;  // these two outlive it
  const Plan& plan;
  int64_t parameters = 0;
  double flops = 0;       // of an iteration, as counted
  double peak_flops = 1;  // per second, of all that the workers have to compute with
  MemoryBytes forecast;
};

class RunMetrics {
 public:
  // Whether a run of this configuration and this folder has any.
  static bool Wanted(const Config& config, const std::string& folder);
  static absl::StatusOr<std::unique_ptr<RunMetrics>> Create(const RunMetricsOptions& options);

  // These three: the first error of a file that cannot be written. It is not tried again; the
  // others are written all the same. `lr`: of its iteration.
  absl::Status Write(const IterationResult& result, double lr);
  // Of the iteration after which so many are done, by the sum of its gradients' squares: its norm,
  // and the updates skipped so far. Of each iteration once, ascending. Write does it but for the
  // last RingTotals::GradientLag of them.
  absl::Status WriteNorm(int done, double squares);
  absl::Status WriteEvaluation(const EvaluationResult& result);

 private:
  explicit RunMetrics(const RunMetricsOptions& options);
  absl::Status OpenAll();
  absl::Status Open(absl::StatusOr<std::unique_ptr<MetricsWriter>> writer);
  int64_t SamplesDone(int iterations) const;
  absl::Status WriteAll(int iterations_done, const std::vector<Scalar>& scalars);

  const RunMetricsOptions options_;
  const double stale_share_;
  std::vector<std::unique_ptr<MetricsWriter>> writers_;
  std::chrono::steady_clock::time_point last_;
  int skipped_ = 0;  // updates, of those whose norm is known
};

// Before the run: the folder, made, with room for a file. AlreadyExists if it holds an earlier
// run's metrics.
absl::Status MakeMetricsFolder(const std::string& folder);

// Where the workers leave their flight records of a run's end.
std::string MetricsFlights(const std::string& folder);

struct SummaryInfo {
  const Config& config;
  int iterations = 0;  // that were done
  int planned_iterations = 0;
  bool interrupted = false;  // then no bytes are told: they are of whole runs
  const NotWritten& not_written;
  double seconds = 0;       // of the run, start-up included
  OrderedJson certificate;  // RunFitJson, or null
  OrderedJson provenance;
  OrderedJson again;  // Comparison::json, or null
};

// The JSON that scripts read, and the same for a person. Names of the JSON are relied on (README).
// Seconds, waits, CPU seconds and faults are those of the measured iterations, per iteration; waits
// are the mean over workers, CPU seconds and faults the sum. Bytes are those of the whole run, all
// workers, divided by its iterations.
struct Summary {
  std::string json;
  std::string text;
};

// `reports`: one per worker, in order.
Summary Summarize(const SummaryInfo& info, const std::vector<WorkerReport>& reports);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RUN_METRICS_H_
