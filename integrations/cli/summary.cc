// Merges the workers' reports.
#include "integrations/cli/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integrations/cli/progress.h"
#include "integrations/cli/run_setup.h"

namespace ringzero {
namespace {

using OrderedJson = nlohmann::ordered_json;

// An integer where the division leaves nothing: bytes per step are exact.
OrderedJson PerStep(uint64_t total, int iterations) {
  const uint64_t n = static_cast<uint64_t>(std::max(iterations, 1));
  if (total % n == 0) return total / n;
  return static_cast<double>(total) / static_cast<double>(n);
}

OrderedJson OrNull(const std::optional<double>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

struct Totals {
  uint64_t training_bytes = 0;
  uint64_t other_bytes = 0;
  uint64_t copied_bytes = 0;
  double cpu_seconds = 0;
  int64_t minor_faults = 0;
  WaitSeconds waits;  // per step, mean over workers
  double pss_mib = 0;
  MemoryBytes memory;
};

Totals AddUp(const std::vector<WorkerReport>& reports) {
  Totals totals;
  const double workers = static_cast<double>(reports.size());
  for (const WorkerReport& report : reports) {
    totals.training_bytes += report.training_bytes;
    totals.other_bytes += report.other_bytes;
    totals.copied_bytes += report.copied_bytes;
    totals.pss_mib += report.pss_peak_mib;
    totals.memory += report.memory;
    const double steps = std::max(report.measured, 1);
    totals.cpu_seconds += report.resources.cpu_seconds / steps;
    totals.minor_faults += static_cast<int64_t>(
        std::llround(static_cast<double>(report.resources.minor_faults) / steps));
    totals.waits.parameters += report.waits.parameters / steps / workers;
    totals.waits.gradient_sums += report.waits.gradient_sums / steps / workers;
    totals.waits.update += report.waits.update / steps / workers;
    totals.waits.other += report.waits.other / steps / workers;
  }
  return totals;
}

// By worker: [seconds since the run's first point, bytes, peak since the point before].
OrderedJson Activations(const std::vector<WorkerReport>& reports) {
  double start = std::numeric_limits<double>::infinity();
  for (const WorkerReport& report : reports) {
    if (!report.activations.empty()) start = std::min(start, report.activations[0].seconds);
  }
  OrderedJson workers = OrderedJson::array();
  for (const WorkerReport& report : reports) {
    OrderedJson points = OrderedJson::array();
    for (const ActivationPoint& point : report.activations) {
      points.push_back({point.seconds - start, point.bytes, point.peak});
    }
    workers.push_back(std::move(points));
  }
  return workers;
}

// Bytes by category, and their total.
OrderedJson MemoryAndTotal(const MemoryBytes& memory) {
  OrderedJson json;
  for (const MemoryCategory& category : MemoryCategories()) {
    json[category.name] = memory.*category.bytes;
  }
  json["total"] = memory.total();
  return json;
}

std::string FormatBytes(double bytes) {
  if (bytes < 10 * 1024) return absl::StrFormat("%.0f B", bytes);
  if (bytes < 10 * 1024 * 1024) return absl::StrFormat("%.1f KiB", bytes / 1024);
  return absl::StrFormat("%.1f MiB", bytes / 1024 / 1024);
}

// Of the measured iterations: neither on a processor nor in a wait for the ring.
double OffCoreSeconds(const WorkerReport& report) {
  const double total = report.step_mean * std::max(report.measured, 1);
  return std::max(0.0, total - report.waits.sum() - report.on_core_seconds);
}

// "  worker 0   12.3 ms  compute 80 %   parameters 12 %   …"
std::string DescribeWorker(const WorkerReport& report) {
  const double total = report.step_mean * std::max(report.measured, 1);
  if (total <= 0) return "";
  const WaitSeconds& waits = report.waits;
  const auto percent = [&](double seconds) { return 100 * std::max(seconds, 0.0) / total; };
  return absl::StrFormat(
      "  worker %d: compute %.1f %%, off the core %.1f %%, waits for parameters %.1f %%, sums %.1f "
      "%%, update %.1f %%, "
      "other %.1f %%; peak memory %.0f MiB\n",
      report.worker, percent(total - waits.sum() - OffCoreSeconds(report)),
      percent(OffCoreSeconds(report)), percent(waits.parameters), percent(waits.gradient_sums),
      percent(waits.update), percent(waits.other), report.pss_peak_mib);
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

void AddTimes(const std::vector<WorkerReport>& reports, const Totals& totals, OrderedJson& json) {
  json["waits_seconds_per_step"] = {{"parameters", totals.waits.parameters},
                                    {"gradient_sums", totals.waits.gradient_sums},
                                    {"update", totals.waits.update}};
  OrderedJson on_core = OrderedJson::array(), off_core = OrderedJson::array();
  for (const WorkerReport& report : reports) {
    const double steps = std::max(report.measured, 1);
    on_core.push_back(report.on_core_seconds / steps);
    off_core.push_back(OffCoreSeconds(report) / steps);
  }
  json["compute_seconds_per_step"] = {{"on_core", on_core}, {"off_core", off_core}};
}

// Bytes sent, processor time, memory.
void AddUse(const SummaryInfo& info, const std::vector<WorkerReport>& reports, const Totals& totals,
            OrderedJson& json) {
  const WorkerReport& first = reports.front();
  if (!info.interrupted) {
    json["bytes_per_step"] = PerStep(totals.training_bytes, info.iterations);
    json["bytes_other_per_step"] = PerStep(totals.other_bytes, info.iterations);
    json["bytes_copied_per_step"] = PerStep(totals.copied_bytes, info.iterations);
  }
  json["cpu_seconds_per_step"] = totals.cpu_seconds;
  json["minor_faults_per_step"] = totals.minor_faults;
  json["pss_mib"] = first.pss_mib;
  json["pss_peak_mib"] = OrderedJson::array();
  for (const WorkerReport& report : reports) json["pss_peak_mib"].push_back(report.pss_peak_mib);
  json["memory"] = {{"forecast", MemoryAndTotal(first.forecast)},
                    {"allocated", MemoryAndTotal(totals.memory)}};
  if (!info.certificate.empty()) {
    json["memory"]["certificate"] = OrderedJson::parse(info.certificate, nullptr, false);
  }
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
  json["gradient_norm"] = OrNull(first.gradient_norm);
  json["mfu"] = OrNull(first.mfu);
  json["loss"] = {{"first", OrNull(first.first_loss)}, {"last", OrNull(first.last_loss)}};
  AddEvaluations(first, json);
  AddTimes(reports, totals, json);
  if (config.precision.skip_overflows) {
    json["skipped_updates"] = first.skipped_updates;
    json["loss_scale"] = first.loss_scale;
  }
  AddUse(info, reports, totals, json);
  const std::string& digest = first.parameters_sha256;
  json["parameters_sha256"] = digest.empty() ? OrderedJson(nullptr) : OrderedJson(digest);
  json["seconds"] = info.seconds;
  json["provenance"] = OrderedJson::parse(info.provenance);
  if (!info.again.empty()) json["again"] = OrderedJson::parse(info.again);
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

Summary Summarize(const SummaryInfo& info, const std::vector<WorkerReport>& reports) {
  const Totals totals = AddUp(reports);
  const OrderedJson json = JsonOf(info, reports, totals);
  return {.json = json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n",
          .text = TextOf(info, reports, totals)};
}

}  // namespace ringzero
