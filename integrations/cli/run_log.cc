// Means from folded sums.
#include "integrations/cli/run_log.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace ringzero {

std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> RunLog::Listener() {
  return [this](Iteration iteration, LapTask::Kind kind, const std::vector<double>& metrics) {
    Report(iteration, kind, metrics);
  };
}

void RunLog::Report(Iteration iteration, LapTask::Kind kind, const std::vector<double>& metrics) {
  const double loss = WithoutNanSign(metrics[0] / metrics[2]);
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  if (kind == LapTask::Kind::kTrain) {
    if (!first_loss_.has_value()) first_loss_ = loss;
    last_loss_ = loss;
    iterations_ = iteration.value + 1;
    losses_.push_back({.done = iteration.value + 1,
                       .loss = loss,
                       .when = std::chrono::steady_clock::now(),
                       .totals = {metrics.begin() + kQualityCount, metrics.end()}});
    return;
  }
  EvaluationResult result{.iteration = iteration.value, .loss = loss};
  if (task_ == Task::kClasses) result.accuracy = metrics[1] / metrics[2];
  evaluations_.push_back(result);
  notes_.push_back(result.accuracy.has_value()
                       ? absl::StrFormat("iteration %d: held-out loss %.4f, accuracy %.2f %%",
                                         result.iteration, loss, 100 * *result.accuracy)
                       : absl::StrFormat("iteration %d: held-out loss %.4f, perplexity %.3f",
                                         result.iteration, loss, result.quality().value));
}

void RunLog::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

int RunLog::iterations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return iterations_;
}

std::optional<double> RunLog::first_loss() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return first_loss_;
}

std::optional<double> RunLog::last_loss() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_loss_;
}

std::optional<EvaluationResult> RunLog::last_evaluation() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (evaluations_.empty()) return std::nullopt;
  return evaluations_.back();
}

std::vector<EvaluationResult> RunLog::evaluations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return evaluations_;
}

std::vector<std::string> RunLog::TakeNotes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(notes_, {});
}

std::vector<EvaluationResult> RunLog::TakeEvaluations() {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t from = std::exchange(evaluations_taken_, evaluations_.size());
  return {evaluations_.begin() + static_cast<ptrdiff_t>(from), evaluations_.end()};
}

std::vector<RunLog::Loss> RunLog::TakeLosses() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(losses_, {});
}

}  // namespace ringzero
