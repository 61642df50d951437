// The text, as nccl-tests lays it out; the same numbers as JSON (nccl-tests' schema, with more) and as
// CSV.
#include "bench/ring/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
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

// nccl-tests' `redop` and `root` of a mode.
const char* ReductionOf(RingMode mode) { return mode == RingMode::kReduce ? "sum" : "none"; }
int RootOf(RingMode mode) { return mode == RingMode::kRelay || mode == RingMode::kReduce ? 0 : -1; }

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

using Json = nlohmann::ordered_json;

// Version of the schema in docs/ring_perf.md.
constexpr int kSchema = 1;

Json SpeedJson(const std::optional<HostSpeed>& measured) {
  if (!measured) return Json();
  const HostSpeed& speed = *measured;
  Json json = {{"memcpy_gb_per_s", speed.memcpy_gb_per_s}};
  const bool cores = speed.core_to_core_us >= 0;
  json["core_to_core_us"] = cores ? Json(speed.core_to_core_us) : Json();
  json["futex_wake_us"] = cores ? Json(speed.futex_wake_us) : Json();
  return json;
}

Json ComparisonJson(const Comparison& c) {
  return {{"time_us", c.peer_us},
          {"bus_bw", c.peer_gb_per_s},
          {"ratio", c.ratio},
          {"difference_us", c.difference_us},
          {"rounds_us", c.peer_rounds_us},
          {"our_rounds_us", c.rounds_us}};
}

Json RowJson(const Row& row, const RingOptions& options, bool copied) {
  const Statistics& s = row.statistics;
  Json json = {{"size", row.bytes},
               {"count", row.count},
               {"type", ToString(row.type)},
               {"redop", ReductionOf(options.mode)},
               {"root", std::to_string(RootOf(options.mode))},
               {"cycle", row.cycle},
               {"timestamp", row.timestamp}};
  json["out_of_place"] = {{"time", row.time_us}, {"alg_bw", row.algbw}, {"bus_bw", row.busbw}};
  json["out_of_place"]["nwrong"] = row.wrong ? Json(*row.wrong) : Json();
  json["out_of_place_per_iter"] = {{"skipped_iterations", options.per_iteration_skip},
                                   {"min_us", s.min},
                                   {"max_us", s.max},
                                   {"avg_us", s.mean},
                                   {"p50_us", s.median},
                                   {"p95_us", s.p95},
                                   {"p99_us", s.p99},
                                   {"stdev_us", s.deviation},
                                   {"cv_pct", s.variation_percent},
                                   {"times_us", row.iteration_us},
                                   {"per_process_max_times_us", row.worker_us}};
  json["in_place"] = Json();
  json["copied"] = copied;
  json["actual_iterations"] = row.iteration_us.size();
  json["peer"] = row.comparison ? ComparisonJson(*row.comparison) : Json();
  return json;
}

}  // namespace

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

absl::Status CheckOutputs(const RingOptions& options) {
  return CheckOutputFiles({{"--output_file", options.json_file}, {"--csv", options.csv_file}},
                          {{"--plan", options.plan_file}});
}

std::string Report::ToJson() const {
  Json json = {{"version", kSchema},
               {"start_time", started_},
               {"args", options_.command},
               {"versions", VersionText()}};
  json["config"] = {{"mode", ToString(options_.mode)},
                    {"transport", options_.transport},
                    {"memory", options_.memory == MemoryKind::kHost ? "host" : "cuda"},
                    {"workers", options_.workers},
                    {"progress", options_.progress == ProgressMode::kThread ? "thread" : "poll"},
                    {"pinned", options_.pinning == Pinning::kOneCoreEach},
                    {"copy", options_.receiving == Receiving::kCopy},
                    {"cached", options_.caching == Caching::kCached},
                    {"slots", options_.slots},
                    {"minimum_bytes", options_.min_bytes},
                    {"maximum_bytes", options_.max_bytes},
                    {"step_factor", options_.step_factor},
                    {"step_bytes", options_.step_bytes},
                    {"warmup_iters", options_.warmup},
                    {"iterations", options_.iterations},
                    {"aggregated_iterations", options_.aggregate},
                    {"validation", options_.check},
                    {"average", static_cast<int>(options_.average)},
                    {"compared_with", peer_.empty() ? Json() : Json(peer_)},
                    {"notes", notes_}};
  json["host"] = {{"name", facts_.name},          {"cpu_model", facts_.cpu_model},
                  {"cores", facts_.cores},        {"last_cache_bytes", facts_.last_cache_bytes},
                  {"before", SpeedJson(before_)}, {"after", SpeedJson(after_)}};
  json["devices"] = Json::array();
  for (const WorkerFacts& worker : workers_) {
    json["devices"].push_back({{"rank", worker.worker},
                               {"pid", worker.pid},
                               {"hostname", worker.host},
                               {"core", worker.core},
                               {"link_right", worker.right},
                               {"link_left", worker.left}});
  }
  json["results"] = Json::array();
  for (const Row& row : rows_) json["results"].push_back(RowJson(row, options_, copies()));
  json["out_of_bounds"] = {{"count", wrong()}, {"okay", wrong() == 0 ? "true" : "false"}};
  json["average_bus_bandwidth"] = {{"bandwidth", average_busbw()}, {"okay", "unchecked"}};
  json["end_time"] = ended_;
  return json.dump(1) + "\n";
}

std::string Report::ToCsv() const {
  std::string text =
      "cycle,size,count,type,redop,root,time_us,algbw,busbw,wrong,min_us,max_us,avg_us,p50_us,"
      "p95_us,p99_us,cv_pct,peer_time_us,peer_busbw,ratio,difference_us,copied\n";
  for (const Row& row : rows_) {
    const Statistics& s = row.statistics;
    absl::StrAppendFormat(&text, "%d,%d,%d,%s,%s,%d,%.6g,%.6g,%.6g,%s", row.cycle, row.bytes,
                          row.count, ToString(row.type), ReductionOf(options_.mode),
                          RootOf(options_.mode), row.time_us, row.algbw, row.busbw,
                          row.wrong ? std::to_string(*row.wrong) : "");
    for (const double value : {s.min, s.max, s.mean, s.median, s.p95, s.p99, s.variation_percent}) {
      absl::StrAppendFormat(&text, ",%.6g", value);
    }
    if (row.comparison) {
      const Comparison& c = *row.comparison;
      absl::StrAppendFormat(&text, ",%.6g,%.6g,%.6g,%.6g", c.peer_us, c.peer_gb_per_s, c.ratio,
                            c.difference_us);
    } else {
      absl::StrAppend(&text, ",,,,");
    }
    absl::StrAppend(&text, copies() ? ",yes\n" : ",no\n");
  }
  return text;
}

absl::Status Report::WriteFiles() const {
  if (!options_.json_file.empty()) {
    RZ_RETURN_IF_ERROR(WriteWholeFile(options_.json_file, ToJson()));
  }
  if (!options_.csv_file.empty()) RZ_RETURN_IF_ERROR(WriteWholeFile(options_.csv_file, ToCsv()));
  return absl::OkStatus();
}

}  // namespace ringzero
