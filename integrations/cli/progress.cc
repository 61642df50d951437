// When a line is due, what it says, and how it gets onto the screen.
#include "integrations/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringzero {

ProgressMeter::ProgressMeter(const ProgressOptions& options)
    : options_(options), start_(Clock::now()), last_(start_) {}

bool ProgressMeter::Due(int done, Clock::time_point now) const {
  if (done == last_done_) return false;
  if (done == options_.iterations) return true;
  if (last_done_ == 0 && (options_.terminal || options_.steps_per_print == 0)) return true;
  if (options_.terminal) return now - last_ >= std::chrono::milliseconds(200);
  if (options_.steps_per_print > 0) return done % options_.steps_per_print == 0;
  return now - last_ >= std::chrono::seconds(10);
}

std::optional<std::string> ProgressMeter::Line(const RunLog::Loss& loss,
                                               const ProgressNumbers& numbers) {
  const Clock::time_point now = loss.when;
  const int done = loss.done;
  if (!Due(done, now)) return std::nullopt;
  const double seconds = std::max(std::chrono::duration<double>(now - last_).count(), 1e-9);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double iterations_per_second = (done - last_done_) / seconds;
  const bool tokens = options_.tokens_per_sample > 0;
  const int64_t units = options_.samples_per_iteration * (tokens ? options_.tokens_per_sample : 1);
  const double left = elapsed / done * (options_.iterations - done);
  std::string line = absl::StrFormat("iteration %d/%d  loss %.4f  lr %.3g", done,
                                     options_.iterations, loss.loss, numbers.lr);
  if (numbers.gradient_norm.has_value()) {
    absl::StrAppendFormat(&line, "  gradient_norm %.3g", *numbers.gradient_norm);
  }
  absl::StrAppendFormat(&line, "  %.0f %s/s  %s left",
                        iterations_per_second * static_cast<double>(units),
                        tokens ? "tokens" : "samples", FormatDuration(left));
  if (numbers.pss_mib > 0) absl::StrAppendFormat(&line, "  pss %.0f MiB", numbers.pss_mib);
  if (numbers.flops > 0 && numbers.peak_flops > 0) {
    absl::StrAppendFormat(&line, "  mfu %.0f %%",
                          100 * iterations_per_second * numbers.flops / numbers.peak_flops);
  }
  const double waits = numbers.waits.sum();
  absl::StrAppendFormat(&line, "  waits %.0f %%",
                        100 * std::clamp((waits - last_waits_) / seconds, 0.0, 1.0));
  last_ = now;
  last_done_ = done;
  last_waits_ = waits;
  return line;
}

std::string FormatDuration(double seconds) {
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
}

std::string DescribeRule(Rule rule, int64_t laps) {
  if (rule == Rule::kDp) return "";
  return absl::StrFormat(
      "rule %s, K = %d: a worker waits less than with dp, but the first of its K micro-batches per "
      "update reads older parameters, which can cost loss, most of all with K = 1 "
      "(docs/results/text.md)",
      ToString(rule), laps);
}

ProgressScreen::ProgressScreen(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) == 1) {}

void ProgressScreen::Progress(const std::string& line) {
  if (!terminal_) return Note(line);
  winsize size{};
  std::string shown = line;
  // A line that wraps cannot be redrawn.
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    shown.resize(std::min<size_t>(shown.size(), size.ws_col - 1));
  }
  std::fputs(absl::StrCat("\r\x1b[K", shown).c_str(), out_);
  std::fflush(out_);
  drawn_ = true;
}

void ProgressScreen::Note(const std::string& line) {
  if (drawn_) std::fputs("\r\x1b[K", out_);
  drawn_ = false;
  std::fputs(absl::StrCat(line, "\n").c_str(), out_);
  std::fflush(out_);
}

void ProgressScreen::Clear() {
  if (drawn_) std::fputs("\n", out_);
  drawn_ = false;
  std::fflush(out_);
}

}  // namespace ringzero
