// RunLog: worker 0's record of losses and evaluations, written by an engine thread, read by the
// computing one.
//
//   RunLog log(RunLog::Task::kClasses);
//   options.on_report = log.Listener();
//   log.TakeNotes();     // lines about new evaluations
//
// A micro-batch's metrics are {loss x count, correct, count} and what RingTotals adds: sums, so
// that folding them in micro-batch order is exact whatever the sizes. Count: samples, or tokens of
// text. Thread-safe.
#ifndef RINGZERO_INTEGRATIONS_CLI_RUN_LOG_H_
#define RINGZERO_INTEGRATIONS_CLI_RUN_LOG_H_

#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "integrations/sight/ring_totals.h"
#include "zero/engine.h"

namespace ringzero {

inline constexpr int kQualityCount = 3;
inline constexpr int kMetricsCount = kQualityCount + RingTotals::kCount;

struct EvaluationResult {
  struct Quality {
    const char* name;
    double value;
  };
  // Of classes the accuracy, of tokens the perplexity.
  Quality quality() const {
    return accuracy.has_value() ? Quality{"accuracy", *accuracy}
                                : Quality{"perplexity", std::exp(loss)};
  }

  int iteration = 0;               // how many were over: the version θ_e that was evaluated
  double loss = 0;                 // mean
  std::optional<double> accuracy;  // absent: of tokens
};

class RunLog {
 public:
  enum class Task { kClasses, kTokens };
  explicit RunLog(Task task) : task_(task) {}

  // For RingModelOptions::on_report; `this` must outlive it.
  std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> Listener();

  struct Loss {
    int done = 0;  // iterations
    double loss = 0;
    std::chrono::steady_clock::time_point when;  // it was reported
    std::vector<double> totals;                  // RingTotals', summed over the ring
  };
  // What is reported from now on is not taken: what was told stays all.
  void Close();
  int iterations() const;  // whose loss is known
  std::optional<double> first_loss() const;
  std::optional<double> last_loss() const;
  std::optional<EvaluationResult> last_evaluation() const;
  std::vector<EvaluationResult> evaluations() const;
  // What has happened since the last call, in lines for a person.
  std::vector<std::string> TakeNotes();
  // The losses since the last call, one per iteration.
  std::vector<Loss> TakeLosses();
  // Likewise.
  std::vector<EvaluationResult> TakeEvaluations();

 private:
  void Report(Iteration iteration, LapTask::Kind kind, const std::vector<double>& metrics);

  const Task task_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  int iterations_ = 0;
  std::optional<double> first_loss_;
  std::optional<double> last_loss_;
  std::vector<EvaluationResult> evaluations_;
  std::vector<std::string> notes_;
  std::vector<Loss> losses_;
  size_t evaluations_taken_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RUN_LOG_H_
