// Progress: what a person sees while a run goes on. Each class is used by one thread.
//
//   ProgressMeter meter({.iterations = 1000, .samples_per_iteration = 128});
//   if (auto line = meter.Line(result, so_far, waits)) emit("progress", *line);   // in worker 0
//   ProgressScreen screen(stderr);                                     // where the terminal is
//   screen.Progress(line);   screen.Note(line);
//
// At a terminal the progress line is redrawn in place; elsewhere it is a plain line after the first
// iteration and then about every 10 s, or every steps_per_print iterations.
#ifndef RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_
#define RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "integrations/cli/worker_report.h"
#include "sharding/plan.h"

namespace ringzero {

struct ProgressOptions {
  int iterations = 0;
  int64_t samples_per_iteration = 0;
  int64_t tokens_per_sample = 0;  // 0: the data are no tokens
  bool terminal = false;          // redrawn often; else seldom
  int steps_per_print = 0;        // 0: by time; counts where there is no terminal
  double flops = 0;               // of an iteration
  double peak_flops = 0;          // per second; 0: not known
};

class ProgressMeter {
 public:
  explicit ProgressMeter(const ProgressOptions& options);

  // A line, if one is due, with what `so_far` has under the names of the metrics. `waits`: seconds
  // since the start. Rates are by the time of the report: losses are folded on the engine's threads
  // and may be seen here several at once.
  std::optional<std::string> Line(const IterationResult& result, const WorkerReport& so_far,
                                  double waits);

 private:
  using Clock = std::chrono::steady_clock;
  bool Due(int done, Clock::time_point now) const;

  const ProgressOptions options_;
  const Clock::time_point start_;
  Clock::time_point last_;  // of the last line
  int last_done_ = 0;
  double last_waits_ = 0;
};

// "1.5 s", "42 s", "3 min 05 s", "2 h 10 min".
std::string FormatDuration(double seconds);

// What a cyclic rule gains and costs with K laps, one sentence; empty for dp.
std::string DescribeRule(Rule rule, int64_t laps);

class ProgressScreen {
 public:
  explicit ProgressScreen(std::FILE* out);
  ~ProgressScreen() { Clear(); }

  bool terminal() const { return terminal_; }
  void Progress(const std::string& line);  // may be overwritten by the next
  void Note(const std::string& line);      // stays
  void Clear();                            // ends a line that was being redrawn

 private:
  std::FILE* out_;
  bool terminal_ = false;
  bool drawn_ = false;
};

// Which losses and gradient norms of a run were not finite, and what to say of it: a line at the
// first of them, and one at the end. Iterations count from 1, as the progress line does.
class NonfiniteWatch {
 public:
  enum class Value { kLoss, kGradientNorm, kHeldOutLoss };

  explicit NonfiniteWatch(int iterations) : iterations_(iterations) {}

  // The line, if this is the run's first value that is not finite. `done`: iterations, the value's
  // own included. `from`: where it comes from, as far as that is known.
  std::optional<std::string> Note(Value what, int done, double value, absl::string_view from);
  // Nothing if all were finite.
  std::optional<std::string> Summary() const;

 private:
  struct Seen {
    int times = 0;
    int first = 0;
  };
  const int iterations_;
  std::array<Seen, 3> seen_ = {};  // by Value
  bool said_ = false;
};

// Where an iteration's loss comes from that is not finite: the micro-batches whose own is not.
std::string OriginOf(const IterationResult& result, const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_
