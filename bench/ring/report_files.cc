// The same numbers as JSON (nccl-tests' schema, with more) and as CSV.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "bench/ring/report.h"
#include "nlohmann/json.hpp"

namespace ringzero {
namespace {

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
