// When a line is due, what it says, and how it gets onto the screen.
#include "integrations/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "integrations/sight/metrics.h"

namespace ringzero {
namespace {

constexpr std::array<const char*, 3> kValueNames = {"loss", "gradient norm", "held-out loss"};

}  // namespace

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

std::optional<std::string> ProgressMeter::Line(const IterationResult& result,
                                               const WorkerReport& so_far, double waits) {
  const Clock::time_point now = result.when;
  const int done = result.done;
  if (!Due(done, now)) return std::nullopt;
  const double seconds = std::max(std::chrono::duration<double>(now - last_).count(), 1e-9);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double iterations_per_second = (done - last_done_) / seconds;
  const bool tokens = options_.tokens_per_sample > 0;
  const int64_t units = options_.samples_per_iteration * (tokens ? options_.tokens_per_sample : 1);
  const double left = elapsed / done * (options_.iterations - done);
  std::string line = absl::StrFormat("iteration %d/%d  loss %.4f  lr %.3g", done,
                                     options_.iterations, result.loss, so_far.lr);
  if (so_far.gradient_norm.has_value()) {
    absl::StrAppendFormat(&line, "  gradient_norm %.3g", *so_far.gradient_norm);
  }
  absl::StrAppendFormat(&line, "  %.0f %s/s  %s left",
                        iterations_per_second * static_cast<double>(units),
                        tokens ? "tokens" : "samples", FormatDuration(left));
  if (so_far.pss_mib > 0) absl::StrAppendFormat(&line, "  pss %.0f MiB", so_far.pss_mib);
  if (options_.flops > 0 && options_.peak_flops > 0) {
    absl::StrAppendFormat(&line, "  mfu %.0f %%",
                          100 * iterations_per_second * options_.flops / options_.peak_flops);
  }
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

std::optional<std::string> NonfiniteWatch::Note(Value what, int done, double value,
                                                absl::string_view from) {
  if (std::isfinite(value)) return std::nullopt;
  Seen& seen = seen_[static_cast<size_t>(what)];
  if (seen.times++ == 0) seen.first = done;
  if (std::exchange(said_, true)) return std::nullopt;
  return absl::StrCat("iteration ", done, "/", iterations_, ": the ",
                      kValueNames[static_cast<size_t>(what)], " is ", WithoutNanSign(value),
                      from.empty() ? "" : ", ", from);
}

std::optional<std::string> NonfiniteWatch::Summary() const {
  if (!said_) return std::nullopt;
  std::vector<std::string> parts;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const auto [times, first] = seen_[i];
    if (times == 0) continue;
    parts.push_back(absl::StrCat("the ", kValueNames[i], " ", times,
                                 times == 1 ? " time" : " times", ", first in iteration ", first,
                                 "/", iterations_));
  }
  return absl::StrCat("not finite: ", absl::StrJoin(parts, "; "));
}

std::string OriginOf(const IterationResult& result, const Plan& plan) {
  const int count = static_cast<int>(result.totals[RingTotals::kNonfiniteLosses]);
  if (count != 1) {
    return absl::StrCat("from ", count, " of ", plan.workers * plan.laps, " micro-batches");
  }
  const int number = static_cast<int>(result.totals[RingTotals::kNonfiniteNumbers]);
  return absl::StrCat("from micro-batch ", number, " of worker ", number % plan.workers);
}

}  // namespace ringzero
