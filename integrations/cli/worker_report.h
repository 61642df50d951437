// What the workers count and measure in a run: what the ring sums up, what worker 0 hears of losses,
// and the report of each worker at the end. (What --metrics FOLDER keeps is in provenance.h.)
//
//   ReportInbox inbox;                               // worker 0's
//   options.on_report = inbox.Listener();
//   RingTotals totals(plan);                         // every worker's
//   std::vector<double> sums = totals.Take(lap, engine.stats());
//   StepMeter meter({.iterations = T, .laps = K}, engine.stats());
//   meter.EndLap(lap, engine.stats());               // after every micro-batch, evaluations too
//   WorkerReport report = …;  meter.WriteTo(report);
//   std::string bytes = ToBytes(report);             // in the worker
//   WorkerReport report = FromBytes(bytes);          // in the parent
//
// A micro-batch's metrics are {loss x count, correct, count} and RingTotals' values: sums, so that
// folding them in micro-batch order is exact whatever the sizes. Count: samples, or tokens of text.
#ifndef RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
#define RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "integrations/cli/provenance.h"
#include "integrations/sight/metrics.h"
#include "integrations/sight/pace.h"
#include "sharding/cost_profile.h"
#include "sharding/memory_forecast.h"
#include "sharding/plan.h"
#include "zero/engine.h"

namespace ringzero {

// What each worker adds to the report of a micro-batch beside its loss, so that the plan's folds
// sum it over the ring. One thread.
class RingTotals {
 public:
  // Places of what Take cannot know. It leaves 0 there; the worker that knows one fills it in.
  enum Place {
    kOffCore = 19,      // seconds since the micro-batch before
    kPss,               // last lap: MiB of this worker's process
    kGradientSquares,   // first lap: of this worker's gradients, GradientLag iterations ago
    kLossScale,         // first lap, worker 0: of this iteration
    kNonfiniteLosses,   // 1: the micro-batch's loss is not finite
    kNonfiniteNumbers,  // there: the micro-batch's number
    kPace,              // first lap, the worker of PaceOf: five values, up to here
    kCount = kPace + 5
  };

  explicit RingTotals(const Plan& plan) : laps_(plan.laps), last_(kOffCore) {}

  // kCount values: computing, waits and bytes since the micro-batch before; at the end of an
  // iteration the memory that is allocated. Of evaluations and the like: zeros, and what was done
  // for them is left out.
  std::vector<double> Take(const LapTask& lap, const EngineStats& stats);

  // The report of iteration t tells the gradient norm of iteration t - lag: only then every owner
  // has certainly updated with it (Engine::GradientSquares). The last ones are known after Finish.
  static int GradientLag(const Plan& plan) {
    const int update = plan.rule == Rule::kDp ? 1 : 2;
    // The norm itself is waited for by the update after it.
    return plan.clipping == Clipping::kPrevious ? update + 1 : update;
  }

  // Whose pace the report of iteration `t` tells: each worker's in turn.
  static WorkerId PaceOf(const Plan& plan, Iteration t) { return WorkerId(t.value % plan.workers); }
  static Pace PaceIn(std::span<const double> sums);
  static void SetPace(const Pace& pace, std::span<double> values);

  // Times as milliseconds of the mean worker, bytes of the whole ring; the places up to kPss.
  // `sums`: kCount values, summed over an iteration.
  static std::vector<Scalar> Scalars(std::span<const double> sums, int workers);

 private:
  const int laps_;
  std::vector<double> last_;  // all so far
};

inline constexpr int kQualityCount = 3;
inline constexpr int kMetricsCount = kQualityCount + RingTotals::kCount;

// What the ring's folds tell worker 0: written by engine threads, read by the computing one.
// Thread-safe.
class ReportInbox {
 public:
  struct Report {
    Iteration iteration;
    LapTask::Kind kind;
    std::vector<double> metrics;  // kMetricsCount sums
    std::chrono::steady_clock::time_point when;
  };
  // For RingModelOptions::on_report; `this` must outlive it.
  std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> Listener();
  // What is reported from now on is not taken: what was told stays all.
  void Close();
  // Since the last call, in the order of their coming.
  std::vector<Report> Take();

 private:
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
};

struct IterationResult {
  int done = 0;     // iterations
  double loss = 0;  // mean
  std::chrono::steady_clock::time_point when;
  std::vector<double> totals;  // RingTotals', summed over the ring
};
IterationResult ResultOf(const ReportInbox::Report& report);

struct EvaluationResult {
  struct Quality {
    const char* name;
    double value;
  };
  // Of classes the accuracy, of tokens the perplexity.
  Quality quality() const;
  // "held-out loss 0.5000, accuracy 75.00 %"
  std::string Describe() const;

  int iteration = 0;               // how many were over: the version θ_e that was evaluated
  double loss = 0;                 // mean
  std::optional<double> accuracy;  // absent: of tokens
};
enum class EvaluationOf { kClasses, kTokens };
EvaluationResult EvaluationIn(const ReportInbox::Report& report, EvaluationOf of);

// Where a worker's time went, in seconds, and what its process used.
struct StepTimes {
  double parameters = 0, gradient_sums = 0, update = 0, other = 0;  // waits for the ring
  double on_core = 0;       // the computing thread was on a processor
  double cpu = 0;           // of the process: user and system, all threads
  double minor_faults = 0;  // page faults of the process
  double waits() const { return parameters + gradient_sums + update + other; }
  void Add(const StepTimes& more, double factor = 1);
  // So far, of this process and, for on_core, of the calling thread.
  static StepTimes Now(const EngineStats& stats);
};

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

// What one worker knows of its run, so far and at the end.
struct WorkerReport {
  int worker = 0;
  WorkerPlace place;
  bool interrupted = false;
  NotWritten not_written;
  // Of the measured iterations.
  int measured = 0;
  double step_median = 0, step_min = 0, step_max = 0, step_mean = 0;  // seconds
  StepTimes times;  // all measured iterations together; the process' part is 0 where another worker
                    // reports the same process
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
  std::optional<double> gradient_norm;  // as last known; nothing where gradients do not travel
  double pss_mib = 0;                   // of the whole ring, as last told
  std::optional<double> mfu;            // of the measured iterations; nothing: FLOPs not known
  std::optional<double> first_loss, last_loss;
  std::vector<EvaluationResult> evaluations;
  std::string parameters_sha256;
};

// Numbers keep all their bits, and text its bytes.
std::string ToBytes(const WorkerReport& report);
// Internal if they are not ToBytes'.
absl::StatusOr<WorkerReport> FromBytes(const std::string& bytes);

// Times a worker's iterations from the ends of its laps. The first iterations are left out (all
// count where there are no more). An evaluation between two iterations counts to neither. The
// calling thread is the computing one.
class StepMeter {
 public:
  struct Options {
    int iterations = 0;
    int laps = 1;
    int left_out = 10;
  };
  StepMeter(const Options& options, const EngineStats& stats);
  void EndLap(const LapTask& lap, const EngineStats& stats);
  int measured() const { return static_cast<int>(seconds_.size()); }
  // measured, step_* and times.
  void WriteTo(WorkerReport& report) const;

 private:
  const Options options_;
  std::chrono::steady_clock::time_point last_time_;  // the end of the iteration, or of the
  StepTimes last_;                                   // evaluation, before
  std::vector<double> seconds_;                      // one per measured iteration
  StepTimes times_;                                  // in all of them together
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
