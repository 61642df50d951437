// Names, numbers, and the merging of the workers' reports.
#include "integrations/cli/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/progress.h"
#include "sharding/render.h"
#include "sharding/samples.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

OrderedJson MemoryJson(const MemoryBytes& memory) {
  OrderedJson json;
  for (const MemoryCategory& category : MemoryCategories()) {
    json[category.name] = memory.*category.bytes;
  }
  return json;
}

std::string Describe(const RunMetricsOptions& options) {
  const Plan& plan = options.plan;
  OrderedJson json = {{"ringzero_run", 1},
                      {"started_wall_seconds", WallSeconds()},
                      {"workers", plan.workers},
                      {"rule", ToString(plan.rule)},
                      {"iterations", plan.iterations},
                      {"train_batch_size", options.config.batch.train_batch},
                      {"parameters", options.parameters},
                      {"stale_share", StaleShare(plan)},
                      {"flops_per_iteration", options.flops},
                      {"peak_flops", options.peak_flops},
                      {"forecast", MemoryJson(options.forecast)},
                      {"plan", PlanToString(plan)},
                      {"not_measured", {"activations: see cyclic.track_activations"}}};
  return json.dump(1) + "\n";
}

// An integer where the division leaves nothing: bytes per step are exact.
OrderedJson PerStep(uint64_t total, int iterations) {
  const uint64_t n = static_cast<uint64_t>(std::max(iterations, 1));
  if (total % n == 0) return total / n;
  return static_cast<double>(total) / static_cast<double>(n);
}

OrderedJson NumberOrNull(const std::optional<double>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

double Steps(const WorkerReport& report) { return std::max(report.measured, 1); }

struct Totals {
  uint64_t training_bytes = 0;
  uint64_t other_bytes = 0;
  uint64_t copied_bytes = 0;
  StepTimes times;  // per step; waits: mean over workers, the rest: sum
  double pss_mib = 0;
  MemoryBytes memory;
};

Totals AddUp(const std::vector<WorkerReport>& reports) {
  Totals totals;
  for (const WorkerReport& report : reports) {
    totals.training_bytes += report.training_bytes;
    totals.other_bytes += report.other_bytes;
    totals.copied_bytes += report.copied_bytes;
    totals.pss_mib += report.pss_peak_mib;
    totals.memory += report.memory;
    StepTimes mine;
    mine.Add(report.times, 1 / Steps(report) / static_cast<double>(reports.size()));
    mine.cpu = report.times.cpu / Steps(report);
    mine.minor_faults = std::round(report.times.minor_faults / Steps(report));
    totals.times.Add(mine);
  }
  return totals;
}

// A list with the value of each worker.
template <typename Value>
OrderedJson ByWorker(const std::vector<WorkerReport>& reports, const Value& value) {
  OrderedJson list = OrderedJson::array();
  for (const WorkerReport& report : reports) list.push_back(value(report));
  return list;
}

// By worker: [seconds since the run's first point, bytes, peak since the point before].
OrderedJson Activations(const std::vector<WorkerReport>& reports) {
  double start = std::numeric_limits<double>::infinity();
  for (const WorkerReport& report : reports) {
    if (!report.activations.empty()) start = std::min(start, report.activations[0].seconds);
  }
  return ByWorker(reports, [start](const WorkerReport& report) {
    OrderedJson points = OrderedJson::array();
    for (const auto& [seconds, bytes, peak] : report.activations) {
      points.push_back({seconds - start, bytes, peak});
    }
    return points;
  });
}

// Of the measured iterations, in seconds.
double AllSeconds(const WorkerReport& report) { return report.step_mean * Steps(report); }

// Of these: neither on a processor nor in a wait for the ring.
double OffCoreSeconds(const WorkerReport& report) {
  return std::max(0.0, AllSeconds(report) - report.times.waits() - report.times.on_core);
}

std::string FormatBytes(double bytes) {
  if (bytes < 10 * 1024) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 10 * 1024 * 1024) return absl::StrFormat("%.1f KiB", bytes / 1024);
  return absl::StrFormat("%.1f MiB", bytes / 1024 / 1024);
}

// "  worker 0: compute 80.0 %, off the core 0.0 %, waits for parameters 12.0 %, …"
std::string DescribeWorker(const WorkerReport& report) {
  const double total = AllSeconds(report);
  if (total <= 0) return "";
  const StepTimes& times = report.times;
  const double off_core = OffCoreSeconds(report);
  const auto percent = [&](double seconds) { return 100 * std::max(seconds, 0.0) / total; };
  return absl::StrFormat(
      "  worker %d: compute %.1f %%, off the core %.1f %%, waits for parameters %.1f %%, sums %.1f "
      "%%, update %.1f %%, other %.1f %%; peak memory %.0f MiB\n",
      report.worker, percent(total - times.waits() - off_core), percent(off_core),
      percent(times.parameters), percent(times.gradient_sums), percent(times.update),
      percent(times.other), report.pss_peak_mib);
}

double SamplesPerSecond(const SummaryInfo& info, const WorkerReport& first) {
  const double batch = static_cast<double>(info.config.batch.train_batch);
  return first.step_mean > 0 ? batch / first.step_mean : 0;
}

void AddEvaluations(const WorkerReport& first, OrderedJson& json) {
  if (first.evaluations.empty()) return;
  OrderedJson list = OrderedJson::array();
  for (const EvaluationResult& result : first.evaluations) {
    const auto [quality, value] = result.quality();
    json[quality] = value;  // the last one's stays
    list.push_back({{"iteration", result.iteration}, {"loss", result.loss}, {quality, value}});
  }
  json["evaluations"] = list;
}

// Time, bytes sent and memory.
void AddUse(const SummaryInfo& info, const std::vector<WorkerReport>& reports, const Totals& totals,
            OrderedJson& json) {
  const StepTimes& times = totals.times;
  json["waits_seconds_per_step"] = {{"parameters", times.parameters},
                                    {"gradient_sums", times.gradient_sums},
                                    {"update", times.update}};
  json["compute_seconds_per_step"] = {
      {"on_core", ByWorker(reports, [](auto& each) { return each.times.on_core / Steps(each); })},
      {"off_core",
       ByWorker(reports, [](auto& each) { return OffCoreSeconds(each) / Steps(each); })}};
  if (info.config.precision.skip_overflows) {
    json["skipped_updates"] = reports.front().skipped_updates;
    json["loss_scale"] = reports.front().loss_scale;
  }
  if (!info.interrupted) {
    json["bytes_per_step"] = PerStep(totals.training_bytes, info.iterations);
    json["bytes_other_per_step"] = PerStep(totals.other_bytes, info.iterations);
    json["bytes_copied_per_step"] = PerStep(totals.copied_bytes, info.iterations);
  }
  json["cpu_seconds_per_step"] = times.cpu;
  json["minor_faults_per_step"] = static_cast<int64_t>(times.minor_faults);
  json["pss_mib"] = reports.front().pss_mib;
  json["pss_peak_mib"] = ByWorker(reports, [](auto& each) { return each.pss_peak_mib; });
  const auto with_total = [](const MemoryBytes& bytes) {
    OrderedJson by_category = MemoryJson(bytes);
    by_category["total"] = bytes.total();
    return by_category;
  };
  json["memory"] = {{"forecast", with_total(reports.front().forecast)},
                    {"allocated", with_total(totals.memory)}};
  if (!info.certificate.is_null()) json["memory"]["certificate"] = info.certificate;
  if (info.config.cyclic.track_activations) json["activations"] = Activations(reports);
}

OrderedJson JsonOf(const SummaryInfo& info, const std::vector<WorkerReport>& reports,
                   const Totals& totals) {
  const Config& config = info.config;
  const WorkerReport& first = reports.front();
  const double samples_per_second = SamplesPerSecond(info, first);
  const auto tokens = static_cast<double>(TokensPerSample(config));
  OrderedJson json;
  json["workers"] = config.cyclic.workers;
  json["rule"] = ToString(config.cyclic.rule);
  json["parameters"] = first.parameters;
  json["iterations"] = info.iterations;
  json["interrupted"] = info.interrupted;
  json["not_written"] = info.not_written;
  json["step_seconds"] = {
      {"median", first.step_median}, {"min", first.step_min}, {"max", first.step_max}};
  json["samples_per_second"] = samples_per_second;
  if (tokens > 0) json["tokens_per_second"] = samples_per_second * tokens;
  json["lr"] = first.lr;
  json["gradient_norm"] = NumberOrNull(first.gradient_norm);
  json["mfu"] = NumberOrNull(first.mfu);
  json["loss"] = {{"first", NumberOrNull(first.first_loss)},
                  {"last", NumberOrNull(first.last_loss)}};
  AddEvaluations(first, json);
  AddUse(info, reports, totals, json);
  json["parameters_sha256"] = OrNull(first.parameters_sha256);
  json["seconds"] = info.seconds;
  json["provenance"] = info.provenance;
  if (!info.again.is_null()) json["again"] = info.again;
  return json;
}

// "1000 iterations in 42 s: loss 2.5 to 0.3; held-out accuracy 91.85 %", and how fast they were.
std::string WhatWasDone(const SummaryInfo& info, const WorkerReport& first) {
  std::string text;
  if (info.interrupted) {
    absl::StrAppendFormat(&text, "interrupted after %d of ", info.iterations);
  }
  absl::StrAppendFormat(&text, "%d iterations in %s", info.planned_iterations,
                        FormatDuration(info.seconds));
  if (first.first_loss.has_value() && first.last_loss.has_value()) {
    absl::StrAppendFormat(&text, ": loss %.4f to %.4f", *first.first_loss, *first.last_loss);
  }
  if (!first.evaluations.empty()) {
    const EvaluationResult& last = first.evaluations.back();
    absl::StrAppend(
        &text, last.accuracy.has_value()
                   ? absl::StrFormat("; held-out accuracy %.2f %%", 100 * *last.accuracy)
                   : absl::StrFormat("; held-out perplexity %.3f (%.4f nats)", last.quality().value,
                                     last.loss));
  }
  text += "\n";
  if (first.measured > 0) {
    const int64_t tokens = TokensPerSample(info.config);
    absl::StrAppendFormat(
        &text, "%.1f %s/s; a step takes %.1f ms (%.1f to %.1f)\n",
        SamplesPerSecond(info, first) * static_cast<double>(tokens > 0 ? tokens : 1),
        tokens > 0 ? "tokens" : "samples", 1e3 * first.step_median, 1e3 * first.step_min,
        1e3 * first.step_max);
  }
  if (first.skipped_updates > 0) {
    absl::StrAppendFormat(&text, "skipped %d of %d updates: gradients not finite",
                          first.skipped_updates, info.iterations);
    const bool dynamic = info.config.precision.loss_scale.dynamic;
    text += dynamic ? absl::StrFormat("; loss scale %g\n", first.loss_scale) : "\n";
  }
  return text;
}

std::string TextOf(const SummaryInfo& info, const std::vector<WorkerReport>& reports,
                   const Totals& totals) {
  std::string text = WhatWasDone(info, reports.front());
  for (const WorkerReport& report : reports) absl::StrAppend(&text, DescribeWorker(report));
  const double iterations = std::max(info.iterations, 1);
  if (!info.interrupted) {
    absl::StrAppendFormat(&text, "sent per step: %s of parameters and sums, %s of other\n",
                          FormatBytes(static_cast<double>(totals.training_bytes) / iterations),
                          FormatBytes(static_cast<double>(totals.other_bytes) / iterations));
  }
  absl::StrAppendFormat(&text,
                        "memory: %.0f MiB: the workers' PSS, each at its most, added up (a page "
                        "that processes share is divided among them; the launching process is not "
                        "counted)\n",
                        totals.pss_mib);
  const Config& config = info.config;
  const std::string rule = DescribeRule(config.cyclic.rule, config.batch.laps);
  if (!rule.empty()) absl::StrAppend(&text, rule, "\n");
  const std::string& digest = reports.front().parameters_sha256;
  if (!digest.empty()) absl::StrAppend(&text, "parameters sha256 ", digest, "\n");
  for (const auto& [what, why] : info.not_written) {
    absl::StrAppend(&text, "not written: ", what, ": ", why, "\n");
  }
  return text;
}

}  // namespace

std::string MetricsFlights(const std::string& folder) { return absl::StrCat(folder, "/flight"); }

absl::Status MakeMetricsFolder(const std::string& folder) {
  for (const char* const name : {"run.json", "metrics.jsonl", "tensorboard", "csv", "config.json",
                                 "provenance.json", "summary.json"}) {
    const std::string path = absl::StrCat(folder, "/", name);
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) continue;
    return absl::AlreadyExistsError(absl::StrCat("--metrics ", folder, ": holds ", path,
                                                 " of an earlier run; name another folder, or "
                                                 "remove it"));
  }
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return CheckWritable(absl::StrCat(folder, "/run.json"));
}

bool RunMetrics::Wanted(const Config& config, const std::string& folder) {
  return !folder.empty() || config.tensorboard.has_value() || config.csv_monitor.has_value();
}

absl::StatusOr<std::unique_ptr<RunMetrics>> RunMetrics::Create(const RunMetricsOptions& options) {
  std::unique_ptr<RunMetrics> metrics(new RunMetrics(options));
  RZ_RETURN_IF_ERROR(metrics->OpenAll());
  return metrics;
}

absl::Status RunMetrics::Open(absl::StatusOr<std::unique_ptr<MetricsWriter>> writer) {
  if (writer.ok()) writers_.push_back(*std::move(writer));
  return writer.status();
}

absl::Status RunMetrics::OpenAll() {
  if (const std::string& folder = options_.folder; !folder.empty()) {
    RZ_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(folder, "/run.json"), Describe(options_)));
    RZ_RETURN_IF_ERROR(Open(MakeJsonLinesWriter(absl::StrCat(folder, "/metrics.jsonl"))));
    RZ_RETURN_IF_ERROR(
        Open(MakeTensorBoardWriter({.output_path = folder, .job_name = "tensorboard"})));
    RZ_RETURN_IF_ERROR(Open(MakeCsvWriter({.output_path = folder, .job_name = "csv"})));
  }
  const Config& config = options_.config;
  if (config.tensorboard) RZ_RETURN_IF_ERROR(Open(MakeTensorBoardWriter(*config.tensorboard)));
  if (config.csv_monitor) RZ_RETURN_IF_ERROR(Open(MakeCsvWriter(*config.csv_monitor)));
  return absl::OkStatus();
}

RunMetrics::RunMetrics(const RunMetricsOptions& options)
    : options_(options),
      stale_share_(StaleShare(options.plan)),
      last_(std::chrono::steady_clock::now()) {}

int64_t RunMetrics::SamplesDone(int iterations) const {
  // Where the plan counts no samples it has no size of a micro-batch either.
  if (options_.plan.samples.per_epoch == 0) return iterations * options_.config.batch.train_batch;
  return SamplesBefore(options_.plan, Iteration(iterations));
}

absl::Status RunMetrics::WriteAll(int iterations_done, const std::vector<Scalar>& scalars) {
  const MetricsMoment moment{.samples = SamplesDone(iterations_done),
                             .iteration = iterations_done,
                             .wall_seconds = WallSeconds()};
  absl::Status status;
  std::erase_if(writers_, [&](const std::unique_ptr<MetricsWriter>& writer) {
    const absl::Status written = writer->Write(moment, scalars);
    status.Update(written);
    return !written.ok();
  });
  return status;
}

absl::Status RunMetrics::Write(const IterationResult& result, double lr) {
  const double seconds = std::chrono::duration<double>(result.when - last_).count();
  last_ = result.when;
  std::vector<Scalar> scalars = {
      {"Train/Samples/train_loss", result.loss},
      {"Train/Samples/lr", lr},
      {"Ring/Samples/iteration_ms", 1000 * seconds},
  };
  if (seconds > 0) {
    const double batch = static_cast<double>(options_.config.batch.train_batch);
    scalars.push_back({"Ring/Samples/samples_per_second", batch / seconds});
    const auto tokens = static_cast<double>(TokensPerSample(options_.config));
    if (tokens > 0) scalars.push_back({"Ring/Samples/tokens_per_second", batch * tokens / seconds});
    if (options_.flops > 0) {
      scalars.push_back({"Ring/Samples/model_flops_per_second", options_.flops / seconds});
      scalars.push_back({"Ring/Samples/mfu", options_.flops / seconds / options_.peak_flops});
    }
  }
  scalars.push_back({"Ring/Samples/stale_share", stale_share_});
  for (Scalar& scalar : RingTotals::Scalars(result.totals, options_.plan.workers)) {
    scalars.push_back(std::move(scalar));
  }
  if (options_.plan.skips())
    scalars.push_back({"Train/Samples/loss_scale", result.totals[RingTotals::kLossScale]});
  absl::Status status = WriteAll(result.done, scalars);
  const int done = result.done - RingTotals::GradientLag(options_.plan);
  if (done >= 1) status.Update(WriteNorm(done, result.totals[RingTotals::kGradientSquares]));
  return status;
}

absl::Status RunMetrics::WriteNorm(int done, double squares) {
  if (!options_.plan.exchange) return absl::OkStatus();
  std::vector<Scalar> scalars = {{"Ring/Samples/gradient_norm", std::sqrt(squares)}};
  if (options_.plan.skips()) {
    if (!std::isfinite(squares)) ++skipped_;
    scalars.push_back({"Ring/Samples/skipped_updates", static_cast<double>(skipped_)});
  }
  return WriteAll(done, scalars);
}

absl::Status RunMetrics::WriteEvaluation(const EvaluationResult& result) {
  const auto [quality, value] = result.quality();
  return WriteAll(result.iteration, {{"Train/Samples/eval_loss", result.loss},
                                     {absl::StrCat("Ring/Samples/eval_", quality), value}});
}

Summary Summarize(const SummaryInfo& info, const std::vector<WorkerReport>& reports) {
  const Totals totals = AddUp(reports);
  const OrderedJson json = JsonOf(info, reports, totals);
  return {.json = Dump(json, 2) + "\n", .text = TextOf(info, reports, totals)};
}

}  // namespace ringzero
