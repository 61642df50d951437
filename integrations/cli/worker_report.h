// What the workers count and measure in a run: what the ring sums up, what worker 0 hears of it,
// and the report of each worker at the end. (What --metrics FOLDER keeps is in provenance.h.)
//
// A micro-batch's metrics are {loss x count, correct, count} and RingTotals' values: sums, so that
// folding them in micro-batch order is exact whatever the sizes. Count: samples, or tokens of text.
#ifndef RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
#define RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_

#include <array>
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
#include "sharding/memory/block_table.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/study/cost_profile.h"
#include "zero/engine.h"

namespace ringzero {

// Of parameters and gradient sums; evaluations and the collection use kInject, too.
inline constexpr std::array kTrainingChannels = {Channel::kForwardCopy, Channel::kBackwardCopy,
                                                 Channel::kInject,      Channel::kSum,
                                                 Channel::kRetire,      Channel::kFinished};

// What each worker adds to the report of a micro-batch beside its loss, so that the plan's folds
// sum it over the ring. One thread.
class RingTotals {
 public:
  // Places of values that Take cannot know. Take leaves 0; a worker that knows a value fills it in.
  enum Place {
    kOffCore = 19,      // seconds since the previous micro-batch
    kPss,               // last lap: MiB of this worker's process
    kGradientSquares,   // first lap: of this worker's gradients, GradientLag iterations ago
    kLossScale,         // first lap, worker 0: of this iteration
    kNonfiniteLosses,   // 1: the micro-batch's loss is not finite
    kNonfiniteNumbers,  // the number of that micro-batch
    kSignals,           // 1: it was asked to save, 1 << 12: to save and to end
    kPace,              // first lap, the worker of PaceOf: its Pace
    kCount = kPace + sizeof(Pace) / sizeof(double)
  };

  explicit RingTotals(const Plan& plan) : laps_(plan.laps), last_(kOffCore) {}

  // kCount values: computing, waits and bytes since the previous micro-batch; at the end of an
  // iteration the memory that is allocated. After evaluations and the like: zeros; what was done
  // for them is left out.
  std::vector<double> Take(const LapTask& lap, const EngineStats& stats);

  // The report of iteration t tells the gradient norm of iteration t - lag: only then every owner
  // has certainly updated with it (Engine::GradientSquares). The last norms are known after Finish.
  static int GradientLag(const Plan& plan) {
    const int update = plan.rule == Rule::kDp ? 1 : 2;
    // With kPrevious only the next update waits for the norm.
    return plan.clipping == Clipping::kPrevious ? update + 1 : update;
  }

  // Whose pace the report of iteration `t` tells: each worker's in turn.
  static WorkerId PaceOf(const Plan& plan, Iteration t) { return WorkerId(t.value % plan.workers); }
  static void SetPace(const Pace& pace, std::span<double> values);

 private:
  const int laps_;
  std::vector<double> last_;  // all totals so far
};

inline constexpr int kQualityCount = 3;
inline constexpr int kMetricsCount = kQualityCount + RingTotals::kCount;

// What the ring's fold of an iteration, or of an evaluation, tells worker 0.
struct RingReport {
  Iteration iteration{0};
  LapTask::Kind kind = LapTask::Kind::kTrain;
  std::vector<double> sums;  // kMetricsCount
  std::chrono::steady_clock::time_point when;

  int done() const { return iteration.value + 1; }                   // iterations
  double loss() const { return WithoutNanSign(sums[0] / sums[2]); }  // mean
  double total(int place) const { return sums[static_cast<size_t>(kQualityCount + place)]; }
  Pace pace() const;
  // RingTotals' places up to kPss: times in milliseconds, mean over workers; bytes of all workers.
  std::vector<Metric> Scalars(int workers) const;
  // Where a loss that is not finite comes from: the micro-batches whose own loss is not finite.
  std::string OriginOfLoss(const Plan& plan) const;
};

// Written by engine threads, read by the computing one. Thread-safe.
class ReportInbox {
 public:
  // For RingModelOptions::on_report; `this` must outlive it.
  std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> Listener();
  // Drops what is reported from now on: nothing is added to what was told.
  void Close();
  // The reports since the last call, in the order of their coming.
  std::vector<RingReport> Take();

 private:
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<RingReport> reports_ ABSL_GUARDED_BY(mutex_);
};

struct EvaluationResult {
  // The accuracy if the data are classes, the perplexity if they are tokens.
  std::pair<const char*, double> quality() const;
  // "held-out loss 0.5000, accuracy 75.00 %"
  std::string Describe() const;

  int iteration = 0;               // iterations over by then: the version θ_e that was evaluated
  double loss = 0;                 // mean
  std::optional<double> accuracy;  // absent: the data are tokens
};
EvaluationResult EvaluationIn(const RingReport& report, bool tokens);

// Live tensors on a worker's computing thread, without gradients that the thread handed over.
struct ActivationPoint {
  double seconds = 0;  // of the host's monotonic clock, which all its processes share
  int64_t bytes = 0;   // at that moment
  int64_t peak = 0;    // since the point before
};

// A profile's file has the same JSON.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StageTicks, forward, backward, add, update)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LayerTimes, name, nanoseconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CostProfile, micro_batch, threads, workers, layers,
                                   lap_nanoseconds, message_nanoseconds)

// Why an output is not written, or not where it was to be; by its name ("metrics", "trace").
using NotWritten = std::map<std::string, std::string>;

// What one worker knows of its run, so far and at the end.
struct WorkerReport {
  int worker = 0;
  OrderedJson place;  // ThisPlace
  bool interrupted = false;
  NotWritten not_written;
  Steps steps;  // all.cpu and all.minor_faults: 0 where another worker reports the same process
  double pss_peak_mib = 0;
  // Of the whole run.
  uint64_t training_bytes = 0;  // parameters and gradient sums sent for training
  uint64_t other_bytes = 0;
  int skipped_updates = 0;                   // of the whole ring: sums were not finite
  double loss_scale = 1;                     // as it is at the end
  MemoryBytes memory;                        // allocated, each category at its most
  std::vector<ActivationPoint> activations;  // cyclic.track_activations
  std::optional<CostProfile> costs;          // TrainTask::costs_from
  // Worker 0 only.
  MemoryBytes forecast;  // of the whole host, by the plan
  int64_t parameters = 0;
  int iterations = 0;                   // iterations whose loss is known
  std::string dump_trouble;             // why --dump-parameters is not there, and where it is
  double lr = 0;                        // of the last iteration; lr to mfu are the metrics' names
  std::optional<double> gradient_norm;  // as last known; nothing where gradients do not travel
  double pss_mib = 0;                   // of the whole ring, as last told
  std::optional<double> mfu;            // of the measured iterations; nothing: FLOPs not known
  std::optional<double> first_loss, last_loss;
  std::vector<EvaluationResult> evaluations;
  std::string parameters_sha256;
};

// Numbers keep all their bits, and text its bytes.
std::string ToBytes(const WorkerReport& report);
// Internal if `bytes` are not from ToBytes.
absl::StatusOr<WorkerReport> FromBytes(const std::string& bytes);

}  // namespace ringzero

// An optional without a value is null in JSON.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  template <typename Json>
  static void to_json(Json& to, const std::optional<T>& from) {
    to = from.has_value() ? Json(*from) : Json(nullptr);
  }
  template <typename Json>
  static void from_json(const Json& from, std::optional<T>& to) {
    if (!from.is_null()) to = from.template get<T>();
  }
};

#endif  // RINGZERO_INTEGRATIONS_CLI_WORKER_REPORT_H_
