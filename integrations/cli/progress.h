// Progress: what a person sees while a run goes on. The meter decides when and what, the screen
// how.
//
//   ProgressMeter meter({.iterations = 1000, .samples_per_iteration = 128});
//   if (auto line = meter.Line(loss, numbers)) emit("progress", *line);   // in worker 0
//   ProgressScreen screen(stderr);                                      // where the terminal is
//   screen.Progress(line);   screen.Note(line);
//
// At a terminal the progress line is redrawn in place; elsewhere it is a plain line after the first
// iteration and then about every 10 s, or every steps_per_print iterations.
#ifndef RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_
#define RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "integrations/cli/run_log.h"
#include "integrations/cli/step_meter.h"
#include "sharding/plan.h"

namespace ringzero {

struct ProgressOptions {
  int iterations = 0;
  int64_t samples_per_iteration = 0;
  int64_t tokens_per_sample = 0;  // 0: the data are no tokens
  bool terminal = false;          // redrawn often; else seldom
  int steps_per_print = 0;        // 0: by time; counts where there is no terminal
};

// What a line says besides the loss, under the names of the metrics.
struct ProgressNumbers {
  WaitSeconds waits;  // since the start
  double lr = 0;
  std::optional<double> gradient_norm;  // of RingTotals::GradientLag iterations ago
  double pss_mib = 0;                   // of the whole ring
  double flops = 0;                     // of an iteration
  double peak_flops = 0;                // per second; 0: not known
};

// One thread.
class ProgressMeter {
 public:
  explicit ProgressMeter(const ProgressOptions& options);

  // A line, if one is due. Rates are by the time of the report: losses are folded on the engine's
  // threads and may be seen here several at once.
  std::optional<std::string> Line(const RunLog::Loss& loss, const ProgressNumbers& numbers);

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

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PROGRESS_H_
