// The text, as nccl-tests lays it out; the same numbers as JSON (nccl-tests' schema, with more) and
// as CSV.
#include "bench/ring/report.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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

std::string SpeedText(const std::optional<HostSpeed>& measured) {
  if (!measured) return "not measured (--skip_host)";
  const HostSpeed& speed = *measured;
  std::string text = absl::StrFormat("memcpy %.2f GB/s", speed.memcpy_gb_per_s);
  if (speed.core_to_core_us < 0) return absl::StrCat(text, ", core to core: one core only");
  absl::StrAppendFormat(&text, ", core to core %.3f us, futex wake %.2f us", speed.core_to_core_us,
                        speed.futex_wake_us);
  return text;
}

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

std::string VersionText() {
  const std::string ucx = UcxVersion();
  return absl::StrCat("ringzero ", RINGZERO_VERSION, ucx.empty() ? "" : ", UCX ", ucx);
}

// "2026-01-31 23:59:59"
std::string TimeNow() {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
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

std::string Report::Header(std::vector<Json> workers, const std::optional<HostSpeed>& before) {
  workers_ = std::move(workers);
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
      options_.copy ? "copy" : "leave it where it is",
      options_.cached ? "stay in the caches" : "rotate past the last cache",
      ToString(options_.average));
  for (const std::string& note : notes_) absl::StrAppend(&text, "# ", note, "\n");
  absl::StrAppendFormat(&text, "#\n# Host %s: %s, %d cores, last cache %d MiB\n", facts_.name,
                        facts_.cpu_model, facts_.cores.size(), facts_.last_cache_bytes >> 20);
  absl::StrAppend(&text, "# Before: ", SpeedText(before_), "\n");
  absl::StrAppend(&text, "# Using workers\n");
  for (const Json& worker : workers_) {
    absl::StrAppendFormat(&text, "#  Worker %2d Pid %6d on %10s core %s: right %s, left %s\n",
                          worker.value("rank", 0), worker.value("pid", 0),
                          worker.value("hostname", ""), worker.value("core", ""),
                          worker.value("link_right", ""), worker.value("link_left", ""));
  }
  if (!peer_.empty()) absl::StrAppend(&text, "# Compared with: ", peer_, "\n");
  absl::StrAppendFormat(&text, "#\n# %50s  %-31s  %-31s\n", "", "         out-of-place",
                        "          in-place");
  const std::vector<Cell> cells = CellsOf({});
  // The # stands where the first column begins.
  for (const auto line : {&Cell::name, &Cell::unit}) {
    absl::StrAppend(&text, "# ", Aligned(cells, line).substr(2), "\n");
  }
  return text;
}

std::string Report::Aligned(const std::vector<Cell>& cells, std::string Cell::*text) {
  return absl::StrJoin(cells, "  ", [text](std::string* out, const Cell& cell) {
    absl::StrAppendFormat(out, "%*s", cell.width, cell.*text);
  });
}

std::vector<Report::Cell> Report::CellsOf(const Row& row) const {
  constexpr char kNotMeasured[] = "N/A";
  std::vector<Cell> cells = {
      {12, "size", "(B)", absl::StrCat(row.bytes)},
      {12, "count", "(elements)", absl::StrCat(row.count)},
      {8, "type", "", ToString(row.type)},
      {6, "redop", "", ReductionOf(options_.mode)},
      {6, "root", "", absl::StrCat(RootOf(options_.mode))},
      {7, "time", "(us)", Fit(row.time_us, 7)},
      {6, "algbw", "(GB/s)", Fit(row.algbw, 6)},
      {6, "busbw", "(GB/s)", Fit(row.busbw, 6)},
      {6, "#wrong", "",
       row.wrong ? absl::StrFormat("%g", static_cast<double>(*row.wrong)) : kNotMeasured}};
  for (int column = 5; column < 9; ++column) {  // the same in place
    cells.push_back(cells[column]);
    cells.back().value = kNotMeasured;
  }
  cells.push_back({6, "copied", "", copies() ? "yes" : "no"});
  if (options_.per_iteration) {
    const Statistics& s = row.statistics;
    for (const auto& [name, value] : {std::pair("i_min", s.min),
                                      {"i_max", s.max},
                                      {"i_p99", s.p99},
                                      {"i_cv%", s.variation_percent},
                                      {"i_p50", s.median}}) {
      const bool percent = std::string_view(name).ends_with('%');
      cells.push_back({7, name, percent ? "(%)" : "(us)", Fit(value, 7)});
    }
  }
  if (!peer_.empty()) {
    const Comparison c = row.comparison.value_or(Comparison());
    cells.push_back({7, "p_time", "(us)", Fit(c.peer_us, 7)});
    cells.push_back({7, "p_busbw", "(GB/s)", Fit(c.peer_gb_per_s, 7)});
    cells.push_back({6, "ratio", "", Fit(c.ratio, 6)});
    cells.push_back({7, "diff", "(us)", Fit(c.difference_us, 7)});
  }
  if (options_.timestamps) cells.push_back({19, "timestamp", "Y-m-d H:M:S", row.timestamp});
  return cells;
}

std::string Report::Line(Row row) {
  row.timestamp = TimeNow();
  const std::string line = Aligned(CellsOf(row), &Cell::value);
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
  if (options_.copy) return true;
  return std::any_of(workers_.begin(), workers_.end(), [](const Json& worker) {
    return worker["link_right"] != "shm" && worker["link_right"] != "local";
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
                    {"pinned", options_.pin},
                    {"copy", options_.copy},
                    {"cached", options_.cached},
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
  json["devices"] = workers_;
  json["results"] = Json::array();
  for (const Row& row : rows_) json["results"].push_back(RowJson(row, options_, copies()));
  json["out_of_bounds"] = {{"count", wrong()}, {"okay", wrong() == 0 ? "true" : "false"}};
  json["average_bus_bandwidth"] = {{"bandwidth", average_busbw()}, {"okay", "unchecked"}};
  json["end_time"] = ended_;
  return json.dump(1) + "\n";
}

std::string Report::ToCsv() const {
  // Each column's name, and where a result of the JSON has it.
  constexpr std::pair<const char*, const char*> kColumns[] = {
      {"cycle", "/cycle"},
      {"size", "/size"},
      {"count", "/count"},
      {"type", "/type"},
      {"redop", "/redop"},
      {"root", "/root"},
      {"time_us", "/out_of_place/time"},
      {"algbw", "/out_of_place/alg_bw"},
      {"busbw", "/out_of_place/bus_bw"},
      {"wrong", "/out_of_place/nwrong"},
      {"min_us", "/out_of_place_per_iter/min_us"},
      {"max_us", "/out_of_place_per_iter/max_us"},
      {"avg_us", "/out_of_place_per_iter/avg_us"},
      {"p50_us", "/out_of_place_per_iter/p50_us"},
      {"p95_us", "/out_of_place_per_iter/p95_us"},
      {"p99_us", "/out_of_place_per_iter/p99_us"},
      {"cv_pct", "/out_of_place_per_iter/cv_pct"},
      {"peer_time_us", "/peer/time_us"},
      {"peer_busbw", "/peer/bus_bw"},
      {"ratio", "/peer/ratio"},
      {"difference_us", "/peer/difference_us"},
      {"copied", "/copied"}};
  const auto name = [](std::string* out, const auto& column) {
    absl::StrAppend(out, column.first);
  };
  std::string text = absl::StrCat(absl::StrJoin(kColumns, ",", name), "\n");
  for (const Row& row : rows_) {
    const Json json = RowJson(row, options_, copies());
    const auto cell = [&json](std::string* out, const auto& column) {
      const Json::json_pointer at(column.second);
      if (!json.contains(at) || json[at].is_null()) return;
      const Json& value = json[at];
      absl::StrAppend(out, value.is_boolean()  ? (value ? "yes" : "no")
                           : value.is_string() ? value.get<std::string>()
                                               : value.dump());
    };
    absl::StrAppend(&text, absl::StrJoin(kColumns, ",", cell), "\n");
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
