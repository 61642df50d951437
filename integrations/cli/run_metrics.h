// What a run tells of itself: lines for a person while it goes on; its numbers, iteration by
// iteration, in the folder of --metrics and wherever the configuration's tensorboard and
// csv_monitor want them (at worker 0); and at the end a summary, where the terminal is and the
// workers' reports meet. Each class: one thread.
//
// docs/sight.md says when a line comes and what is in the folder. The folder also has what makes
// the run again (provenance.h).
#ifndef RINGZERO_INTEGRATIONS_CLI_RUN_METRICS_H_
#define RINGZERO_INTEGRATIONS_CLI_RUN_METRICS_H_

#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/provenance.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/metrics.h"
#include "sharding/plan.h"
#include "sharding/rules/schedule.h"
#include "zero/config/config.h"

namespace ringzero {

// What does not change during a run.
struct RunFacts {
  const Config& config;  // config and plan outlive who uses them
  const Plan& plan;
  bool terminal = false;  // the progress line is redrawn often; otherwise seldom
  double flops = 0;       // of an iteration, as counted
  double peak_flops = 0;  // per second, of all that the workers have to compute with; 0: not known

  // Model FLOPs utilization of an iteration that takes `seconds`; nothing: not known.
  std::optional<double> mfu(double seconds) const {
    if (flops <= 0 || peak_flops <= 0 || seconds <= 0) return std::nullopt;
    return flops / seconds / peak_flops;
  }
};

class ProgressMeter {
 public:
  explicit ProgressMeter(const RunFacts& facts) : facts_(facts) {}

  // A line, if one is due, with what `so_far` has under the names of the metrics. `waits`: seconds
  // waited since the start. Rates are by the time of the report: losses are folded on the engine's
  // threads, and several may come here at once.
  std::optional<std::string> Line(const RingReport& result, const WorkerReport& so_far,
                                  double waits);

 private:
  using Clock = std::chrono::steady_clock;
  bool Due(int done, Clock::time_point now) const;

  const RunFacts facts_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;  // of the last line
  int last_done_ = 0;
  double last_waits_ = 0;
};

// "1.5 s", "42 s", "3 min 05 s", "2 h 10 min".
std::string FormatDuration(double seconds);

// Standard error.
class ProgressScreen {
 public:
  ~ProgressScreen() { Clear(); }

  bool terminal() const { return terminal_; }
  void Progress(const std::string& line);  // may be overwritten by the next
  void Note(const std::string& line);      // stays
  void Clear();                            // ends a line that was being redrawn

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
};

// Which losses and gradient norms of a run were not finite, and what to say: a line at the
// first such value, and a line at the end. Iterations count from 1, as the progress line does.
class NonfiniteWatch {
 public:
  explicit NonfiniteWatch(int iterations) : iterations_(iterations) {}

  // The line, if this is the run's first value that is not finite. `what`: "loss". `done`:
  // iterations, the value's own included. `from`: where the value comes from, as far as known.
  std::optional<std::string> Note(const std::string& what, int done, double value,
                                  absl::string_view from);
  // Nothing if all were finite.
  std::optional<std::string> Summary() const;

 private:
  struct Seen {
    std::string what;
    int times = 0;
    int first = 0;
  };
  const int iterations_;
  std::vector<Seen> seen_;
};

class RunMetrics {
 public:
  // `folder`: was made and checked before the run; empty: none. `so_far` has the parameters and the
  // forecast. Null where neither the folder nor the configuration wants any metrics.
  static absl::StatusOr<std::unique_ptr<RunMetrics>> Create(const RunFacts& facts,
                                                            const std::string& folder,
                                                            const WorkerReport& so_far);

  // The Write functions: the first error of a file that cannot be written. The file is not tried
  // again; the other files are written all the same. `lr`: of the result's iteration.
  absl::Status Write(const RingReport& result, double lr);
  // The gradient norm of the iteration after which `done` are done, and the updates skipped so far.
  // Called once per iteration, ascending.
  absl::Status WriteNorm(int done, double norm, int skipped_updates);
  absl::Status WriteEvaluation(const EvaluationResult& result);

 private:
  explicit RunMetrics(const RunFacts& facts)
      : facts_(facts), stale_share_(StaleShare(facts.plan)) {}
  MetricsMoment At(int iterations_done) const;
  absl::Status WriteAll(int iterations_done, const std::vector<Metric>& scalars);

  const RunFacts facts_;
  const double stale_share_;
  std::vector<MetricsWriter> writers_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Where the workers leave their flight records of a run's end.
std::string MetricsFlights(const std::string& folder);

struct SummaryInfo {
  const RunInput& input;     // its rule is chosen
  int iterations = 0;        // that were done
  std::string rule_text;     // why this rule, and what it costs
  bool interrupted = false;  // no bytes are told then: bytes are of whole runs
  NotWritten not_written;
  double seconds = 0;       // of the run, start-up included
  OrderedJson certificate;  // bytes by place and category, or null
  OrderedJson disk;         // what was predicted of a run whose states stream, or null
  OrderedJson provenance;   // without places, until the end
  OrderedJson again;        // Comparison::json, or null
};

// The JSON that scripts read, and the same for a person. Names of the JSON are relied on (README).
// Step seconds, waits, CPU seconds and faults are of the measured iterations, per iteration; waits
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
