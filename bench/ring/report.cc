// The text: as nccl-tests lays it out.
#include "bench/ring/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {
namespace {

// At most `width` characters: fewer decimals for larger numbers.
std::string Fit(double value, size_t width) {
  for (const int decimals : {2, 1, 0}) {
    const std::string text = absl::StrFormat("%.*f", decimals, value);
    if (text.size() <= width) return text;
  }
  return absl::StrFormat("%.*e", width >= 7 ? 1 : 0, value);
}

constexpr char kNotMeasured[] = "N/A";

// The four columns that nccl-tests has for out of place, and again for in place.
std::string Half(const std::string& time, const std::string& algbw, const std::string& busbw,
                 const std::string& wrong) {
  return absl::StrFormat("  %7s  %6s  %6s  %6s", time, algbw, busbw, wrong);
}

std::string SpeedText(const std::optional<HostSpeed>& measured) {
  if (!measured) return "not measured (--skip_host)";
  const HostSpeed& speed = *measured;
  std::string text = absl::StrFormat("memcpy %.2f GB/s", speed.memcpy_gb_per_s);
  if (speed.core_to_core_us < 0) return absl::StrCat(text, ", core to core: one core only");
  absl::StrAppendFormat(&text, ", core to core %.3f us, futex wake %.2f us", speed.core_to_core_us,
                        speed.futex_wake_us);
  return text;
}

}  // namespace

const char* ReductionOf(RingMode mode) { return mode == RingMode::kReduce ? "sum" : "none"; }

int RootOf(RingMode mode) { return mode == RingMode::kRelay || mode == RingMode::kReduce ? 0 : -1; }

double BusFactor(RingMode mode, int workers) {
  switch (mode) {
    case RingMode::kRelay:
    case RingMode::kReduce: return workers;
    case RingMode::kTrain: return 1.0 / workers;
    default: return 1;
  }
}

std::string VersionText() {
  const std::string ucx = UcxVersion();
  return absl::StrCat("ringzero ", RINGZERO_VERSION, ucx.empty() ? "" : ", UCX ", ucx);
}

std::string TimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

std::string Report::Header(const std::vector<WorkerFacts>& workers,
                           const std::optional<HostSpeed>& before) {
  workers_ = workers;
  before_ = before;
  started_ = TimeNow();
  const bool factor = options_.step_factor > 1;
  std::string text = absl::StrCat("# ring_perf: ", VersionText(), "\n");
  absl::StrAppend(&text, "# Ring test starting: ", options_.command, "\n");
  absl::StrAppendFormat(
      &text,
      "# nWorkers %d mode: %s transport: %s memory: %s minBytes %d maxBytes %d step: %d(%s) "
      "warmup iters: %d iters: %d agg iters: %d validation: %d\n",
      options_.workers, ToString(options_.mode), options_.transport,
      options_.memory == MemoryKind::kHost ? "host" : "cuda", options_.min_bytes,
      options_.max_bytes, factor ? options_.step_factor : static_cast<int64_t>(options_.step_bytes),
      factor ? "factor" : "bytes", options_.warmup, options_.iterations, options_.aggregate,
      options_.check);
  absl::StrAppendFormat(
      &text, "# Waiting: %s; receivers %s; buffers %s; time is that of the %s\n",
      options_.progress == ProgressMode::kThread ? "message threads that sleep" : "workers poll",
      options_.receiving == Receiving::kCopy ? "copy" : "leave it where it is",
      options_.caching == Caching::kCached ? "stay in the caches" : "rotate past the last cache",
      ToString(options_.average));
  for (const std::string& note : notes_) absl::StrAppend(&text, "# ", note, "\n");
  absl::StrAppendFormat(&text, "#\n# Host %s: %s, %d cores, last cache %d MiB\n", facts_.name,
                        facts_.cpu_model, facts_.cores.size(), facts_.last_cache_bytes >> 20);
  absl::StrAppend(&text, "# Before: ", SpeedText(before_), "\n");
  absl::StrAppend(&text, "# Using workers\n");
  for (const WorkerFacts& worker : workers_) {
    absl::StrAppendFormat(&text, "#  Worker %2d Pid %6d on %10s core %s: right %s, left %s\n",
                          worker.worker, worker.pid, worker.host, worker.core, worker.right,
                          worker.left);
  }
  if (!peer_.empty()) absl::StrAppend(&text, "# Compared with: ", peer_, "\n");
  return absl::StrCat(text, "#\n", ColumnNames());
}

std::string Report::ColumnNames() const {
  const std::string halves =
      absl::StrFormat("# %50s  %-31s  %-31s", "", "         out-of-place", "          in-place");
  std::string names =
      absl::StrFormat("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  std::string units =
      absl::StrFormat("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
  for (int half = 0; half < 2; ++half) {
    absl::StrAppend(&names, Half("time", "algbw", "busbw", "#wrong"));
    absl::StrAppend(&units, Half("(us)", "(GB/s)", "(GB/s)", ""));
  }
  absl::StrAppendFormat(&names, "  %6s", "copied");
  absl::StrAppendFormat(&units, "  %6s", "");
  if (options_.per_iteration) {
    for (const char* name : {"i_min", "i_max", "i_p99", "i_cv%", "i_p50"}) {
      absl::StrAppendFormat(&names, "  %7s", name);
      absl::StrAppendFormat(&units, "  %7s", std::string(name) == "i_cv%" ? "(%)" : "(us)");
    }
  }
  if (!peer_.empty()) {
    absl::StrAppendFormat(&names, "  %7s  %7s  %6s  %7s", "p_time", "p_busbw", "ratio", "diff");
    absl::StrAppendFormat(&units, "  %7s  %7s  %6s  %7s", "(us)", "(GB/s)", "", "(us)");
  }
  if (options_.timestamps) {
    absl::StrAppendFormat(&names, "  %19s", "timestamp");
    absl::StrAppendFormat(&units, "  %19s", "Y-m-d H:M:S");
  }
  return absl::StrCat(halves, "\n", names, "\n", units, "\n");
}

std::string Report::Line(Row row) {
  row.timestamp = TimeNow();
  std::string line =
      absl::StrFormat("%12d  %12d  %8s  %6s  %6d", row.bytes, row.count, ToString(row.type),
                      ReductionOf(options_.mode), RootOf(options_.mode));
  absl::StrAppend(
      &line,
      Half(Fit(row.time_us, 7), Fit(row.algbw, 6), Fit(row.busbw, 6),
           row.wrong ? absl::StrFormat("%g", static_cast<double>(*row.wrong)) : kNotMeasured),
      Half(kNotMeasured, kNotMeasured, kNotMeasured, kNotMeasured));
  absl::StrAppendFormat(&line, "  %6s", copies() ? "yes" : "no");
  if (options_.per_iteration) {
    const Statistics& s = row.statistics;
    for (const double value : {s.min, s.max, s.p99, s.variation_percent, s.median}) {
      absl::StrAppendFormat(&line, "  %7s", Fit(value, 7));
    }
  }
  if (row.comparison) {
    const Comparison& c = *row.comparison;
    absl::StrAppendFormat(&line, "  %7s  %7s  %6s  %7s", Fit(c.peer_us, 7), Fit(c.peer_gb_per_s, 7),
                          Fit(c.ratio, 6), Fit(c.difference_us, 7));
  }
  if (options_.timestamps) absl::StrAppendFormat(&line, "  %19s", row.timestamp);
  rows_.push_back(std::move(row));
  return line + "\n";
}

std::string Report::Footer(const std::optional<HostSpeed>& after) {
  after_ = after;
  ended_ = TimeNow();
  std::string text = absl::StrCat("# After: ", SpeedText(after_), "\n");
  absl::StrAppendFormat(&text, "# %-20s : %d %s\n", "Out of bounds values", wrong(),
                        wrong() == 0 ? "OK" : "FAILED");
  absl::StrAppendFormat(&text, "# %-20s : %g \n#\n", "Avg bus bandwidth", average_busbw());
  return absl::StrCat(text, "# Ring test concluded: ring_perf\n");
}

bool Report::copies() const {
  if (options_.receiving == Receiving::kCopy) return true;
  return std::any_of(workers_.begin(), workers_.end(), [](const WorkerFacts& worker) {
    return worker.right != "shm" && worker.right != "local";
  });
}

int64_t Report::wrong() const {
  int64_t wrong = 0;
  for (const Row& row : rows_) wrong += row.wrong.value_or(0);
  return wrong;
}

double Report::average_busbw() const {
  double sum = 0;
  for (const Row& row : rows_) sum += row.busbw;
  return rows_.empty() ? 0 : sum / static_cast<double>(rows_.size());
}

}  // namespace ringzero
