// Differences between moments; each worker is held against the median of the other workers.
#include "integrations/sight/pace.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "zero/op_costs.h"

namespace ringzero {
namespace {

constexpr double kWindowSeconds = 5;
constexpr double kSlowSeconds = 20;
constexpr double kSlowness = 2;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Stolen seconds since boot, mean per processor; 0 if the kernel does not tell.
double StolenSeconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double ticks = 0;  // user, nice, system, idle, iowait, irq, softirq, steal
  file >> name;
  for (int i = 0; i < 8; ++i) file >> ticks;
  const auto processors = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return file ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) / processors : 0;
}

double SecondsEach(const Pace& pace) { return pace.computing_seconds / pace.micro_batches; }

// The lower of the two middle values if their number is even.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Why a worker takes longer than `typical` seconds for a micro-batch. Stolen time is of the whole
// window, waits included.
std::string ReasonOf(const Pace& pace, double typical, double window_seconds) {
  const double lost = pace.computing_seconds - typical * pace.micro_batches;
  const double computing = pace.computing_seconds;
  if (pace.disk_faults >= 50 * computing) {
    return absl::StrFormat("%.0f page faults a second had to read from a disk",
                           pace.disk_faults / computing);
  }
  if (pace.stolen_seconds >= 0.25 * window_seconds) {
    return absl::StrFormat(
        "other guests of its machine had its host's processors for %.0f %% of the time (stolen)",
        100 * pace.stolen_seconds / window_seconds);
  }
  if (pace.off_core_seconds >= 0.5 * lost) {
    return absl::StrFormat(
        "its computing thread was not on a processor for %.0f %% of its computing time",
        100 * pace.off_core_seconds / computing);
  }
  return "it was on a processor, so this one may be slower, or share its core";
}

}  // namespace

Usage Usage::Now(const EngineStats& stats) {
  thread_local double stolen = 0, stolen_read_at = 0;
  rusage process{}, thread{};
  getrusage(RUSAGE_SELF, &process);
  getrusage(RUSAGE_THREAD, &thread);
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  const double seconds = std::chrono::duration<double>(since).count();
  if (seconds - stolen_read_at >= 1) {
    stolen_read_at = seconds;
    stolen = StolenSeconds();
  }
  return {.seconds = seconds,
          .parameters = stats.wait_parameters_seconds,
          .gradient_sums = stats.wait_gradient_sums_seconds,
          .update = stats.wait_update_seconds,
          .other = stats.wait_other_seconds,
          .on_core = 1e-9 * static_cast<double>(ThreadNanoseconds()),
          .disk_faults = static_cast<double>(thread.ru_majflt),
          .stolen = stolen,
          .cpu = Seconds(process.ru_utime) + Seconds(process.ru_stime),
          .minor_faults = static_cast<double>(process.ru_minflt)};
}

Usage& Usage::Add(const Usage& more, double factor) {
  for (double Usage::*const part :
       {&Usage::seconds, &Usage::parameters, &Usage::gradient_sums, &Usage::update, &Usage::other,
        &Usage::on_core, &Usage::disk_faults, &Usage::stolen, &Usage::cpu, &Usage::minor_faults}) {
    this->*part += factor * (more.*part);
  }
  return *this;
}

void LapMeter::EndLap(const LapTask& lap, const Usage& now) {
  const Usage used = Usage(now).Add(last_, -1);
  last_ = now;
  if (lap.kind != LapTask::Kind::kTrain) return;
  off_core_ += used.off_core();
  iteration_.Add(used);
  if (lap.lap.value + 1 == options_.laps) {
    const Usage whole = std::exchange(iteration_, {});
    const int left_out = options_.iterations > options_.left_out ? options_.left_out : 0;
    if (lap.iteration.value >= left_out) {
      all_.Add(whole);
      seconds_.push_back(whole.seconds);
    }
  }
  // Iteration 0 is left out of the pace: it takes memory for the first time.
  const bool complete = lap.samples.value_or(options_.micro_batch) == options_.micro_batch;
  if (lap.iteration.value == 0 || !complete) return;
  pace_.micro_batches += 1;
  pace_.computing_seconds += used.computing();
  pace_.off_core_seconds += used.off_core();
  pace_.disk_faults += used.disk_faults;
  pace_.stolen_seconds += used.stolen;
}

Steps LapMeter::steps() const {
  std::vector<double> seconds = seconds_;
  std::sort(seconds.begin(), seconds.end());
  const size_t count = seconds.size();
  if (count == 0) return {};
  return {.count = static_cast<int>(count),
          .median = (seconds[count / 2] + seconds[(count - 1) / 2]) / 2,
          .min = seconds.front(),
          .max = seconds.back(),
          .all = all_};
}

std::vector<std::string> StragglerWatch::Note(int worker, Time when, const Pace& pace) {
  RZ_CHECK(worker >= 0 && worker < static_cast<int>(seen_.size()), "a worker of the ring");
  Seen& seen = seen_[static_cast<size_t>(worker)];
  seen.last = pace;
  seen.told = true;
  const bool all = std::all_of(seen_.begin(), seen_.end(), [](const Seen& s) { return s.told; });
  const double seconds = std::chrono::duration<double>(when - begin_.value_or(when)).count();
  if (!all || (begin_.has_value() && seconds < kWindowSeconds)) return {};
  std::vector<std::string> lines;
  if (begin_.has_value()) lines = EndWindow(seconds);
  for (Seen& each : seen_) {
    each.begin = each.last;
    each.told = false;
  }
  begin_ = when;
  return lines;
}

std::vector<std::string> StragglerWatch::EndWindow(double seconds) {
  std::vector<std::string> lines;
  for (size_t w = 0; w < seen_.size(); ++w) {
    std::vector<double> others;
    for (size_t v = 0; v < seen_.size(); ++v) {
      const Pace pace = seen_[v].last - seen_[v].begin;
      if (v != w && pace.micro_batches > 0) others.push_back(SecondsEach(pace));
    }
    Seen& seen = seen_[w];
    const Pace pace = seen.last - seen.begin;
    const bool known = pace.micro_batches > 0 && !others.empty();
    const double typical = known ? Median(others) : 0;
    const bool slow = known && typical > 0 && SecondsEach(pace) >= kSlowness * typical;
    seen.slow_seconds = slow ? seen.slow_seconds + seconds : 0;
    if (seen.slow_seconds < kSlowSeconds || seen.named) continue;
    seen.named = true;
    lines.push_back(absl::StrFormat(
        "worker %d takes %.1f times as long as the others to compute, for %.0f s now: %s", w,
        SecondsEach(pace) / typical, seen.slow_seconds, ReasonOf(pace, typical, seconds)));
  }
  return lines;
}

}  // namespace ringzero
