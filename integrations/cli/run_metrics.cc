// Lines, files, and the merging of the workers' reports.
#include "integrations/cli/run_metrics.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "sharding/study/render.h"

namespace ringzero {
namespace {

// Of a sample; 0 if the data are not tokens.
int64_t TokensPerSample(const Config& config) {
  return config.model.type == ModelConfig::Type::kGpt ? config.model.gpt.seq : 0;
}

OrderedJson MemoryJson(const MemoryBytes& memory) {
  OrderedJson json;
  for (const MemoryCategory& category : MemoryCategories()) {
    json[category.name] = memory.*category.bytes;
  }
  return json;
}

std::string Describe(const RunFacts& facts, const WorkerReport& so_far) {
  const Plan& plan = facts.plan;
  OrderedJson json = {{"ringzero_run", 1},
                      {"started_wall_seconds", WallSeconds()},
                      {"workers", plan.workers},
                      {"rule", ToString(plan.rule)},
                      {"iterations", plan.iterations},
                      {"train_batch_size", facts.config.batch.train_batch},
                      {"parameters", so_far.parameters},
                      {"stale_share", StaleShare(plan)},
                      {"flops_per_iteration", facts.flops},
                      {"peak_flops", facts.peak_flops},
                      {"forecast", MemoryJson(so_far.forecast)},
                      {"plan", PlanToString(plan)},
                      {"not_measured", {"activations: see cyclic.track_activations"}}};
  return json.dump(1) + "\n";
}

// `value`: a member of the reports, or a function of one.
template <typename Value>
auto Sum(const std::vector<WorkerReport>& reports, const Value& value) {
  std::decay_t<std::invoke_result_t<Value, const WorkerReport&>> sum{};
  for (const WorkerReport& report : reports) sum += std::invoke(value, report);
  return sum;
}

// A list with the value of each worker.
template <typename Value>
OrderedJson ByWorker(const std::vector<WorkerReport>& reports, const Value& value) {
  OrderedJson list = OrderedJson::array();
  for (const WorkerReport& report : reports) list.push_back(std::invoke(value, report));
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

// "  worker 0: compute 80.0 %, off the core 0.0 %, waits for parameters 12.0 %, …"
std::string DescribeWorker(const WorkerReport& report) {
  const Usage& all = report.steps.all;
  if (all.seconds <= 0) return "";
  const auto percent = [&](double seconds) { return 100 * std::max(seconds, 0.0) / all.seconds; };
  return absl::StrFormat(
      "  worker %d: compute %.1f %%, off the core %.1f %%, waits for parameters %.1f %%, sums %.1f "
      "%%, update %.1f %%, other %.1f %%; peak memory %.0f MiB\n",
      report.worker, percent(all.computing() - all.off_core()), percent(all.off_core()),
      percent(all.parameters), percent(all.gradient_sums), percent(all.update), percent(all.other),
      report.pss_peak_mib);
}

double SamplesPerSecond(const SummaryInfo& info, const WorkerReport& first) {
  const double seconds = first.steps.mean(first.steps.all.seconds);
  return seconds > 0 ? static_cast<double>(info.input.config.batch.train_batch) / seconds : 0;
}

void AddEvaluations(const WorkerReport& first, OrderedJson& json) {
  if (first.evaluations.empty()) return;
  OrderedJson list = OrderedJson::array();
  for (const EvaluationResult& result : first.evaluations) {
    const auto [quality, value] = result.quality();
    json[quality] = value;  // the last evaluation's value stays
    list.push_back({{"iteration", result.iteration}, {"loss", result.loss}, {quality, value}});
  }
  json["evaluations"] = list;
}

// Time, bytes sent and memory.
void AddUse(const SummaryInfo& info, const std::vector<WorkerReport>& reports, OrderedJson& json) {
  const WorkerReport& first = reports.front();
  const auto mean_wait = [&](double Usage::*part) {
    return Sum(reports, [&](auto& each) { return each.steps.mean(each.steps.all.*part); }) /
           static_cast<double>(reports.size());
  };
  const auto by_worker = [&](double (*seconds)(const Usage&)) {
    return ByWorker(reports, [&](auto& each) { return each.steps.mean(seconds(each.steps.all)); });
  };
  json["waits_seconds_per_step"] = {{"parameters", mean_wait(&Usage::parameters)},
                                    {"gradient_sums", mean_wait(&Usage::gradient_sums)},
                                    {"update", mean_wait(&Usage::update)}};
  json["compute_seconds_per_step"] = {
      {"on_core", by_worker([](const Usage& all) { return all.on_core; })},
      {"off_core", by_worker([](const Usage& all) { return all.off_core(); })}};
  if (info.input.config.precision.skip_overflows) {
    json["skipped_updates"] = first.skipped_updates;
    json["loss_scale"] = first.loss_scale;
  }
  if (!info.interrupted) {
    for (const auto& [name, bytes] :
         {std::pair("bytes_per_step", &WorkerReport::training_bytes),
          std::pair("bytes_other_per_step", &WorkerReport::other_bytes)}) {
      const uint64_t total = Sum(reports, bytes), n = std::max(info.iterations, 1);
      json[name] = static_cast<double>(total) / static_cast<double>(n);
      if (total % n == 0) json[name] = total / n;  // bytes per step are exact
    }
  }
  json["cpu_seconds_per_step"] =
      Sum(reports, [](auto& each) { return each.steps.mean(each.steps.all.cpu); });
  json["minor_faults_per_step"] = static_cast<int64_t>(Sum(reports, [](auto& each) {
    return std::round(each.steps.mean(each.steps.all.minor_faults));
  }));
  json["pss_mib"] = first.pss_mib;
  json["pss_peak_mib"] = ByWorker(reports, &WorkerReport::pss_peak_mib);
  const auto with_total = [](const MemoryBytes& bytes) {
    OrderedJson by_category = MemoryJson(bytes);
    by_category["total"] = bytes.total();
    return by_category;
  };
  json["memory"] = {{"forecast", with_total(first.forecast)},
                    {"allocated", with_total(Sum(reports, &WorkerReport::memory))}};
  if (!info.certificate.is_null()) json["memory"]["certificate"] = info.certificate;
  if (!info.disk.is_null()) json["disk"] = info.disk;
  if (info.input.config.cyclic.track_activations) json["activations"] = Activations(reports);
}

OrderedJson JsonOf(const SummaryInfo& info, const std::vector<WorkerReport>& reports) {
  const Config& config = info.input.config;
  const WorkerReport& first = reports.front();
  const double samples_per_second = SamplesPerSecond(info, first);
  const auto tokens = static_cast<double>(TokensPerSample(config));
  OrderedJson json;
  json["workers"] = config.cyclic.workers;
  json["rule"] = ToString(*info.input.chosen);
  const bool cyclic = *info.input.chosen != Rule::kDp;
  json["warmup_updates"] = cyclic ? info.input.length.warmup_updates : 0;
  json["predict"] = cyclic && info.input.length.predict;
  json["parameters"] = first.parameters;
  json["iterations"] = info.iterations;
  json["interrupted"] = info.interrupted;
  json["not_written"] = info.not_written;
  json["step_seconds"] = {
      {"median", first.steps.median}, {"min", first.steps.min}, {"max", first.steps.max}};
  json["samples_per_second"] = samples_per_second;
  if (tokens > 0) json["tokens_per_second"] = samples_per_second * tokens;
  json["lr"] = first.lr;
  json["gradient_norm"] = first.gradient_norm;
  json["mfu"] = first.mfu;
  json["loss"] = {{"first", first.first_loss}, {"last", first.last_loss}};
  AddEvaluations(first, json);
  AddUse(info, reports, json);
  json["parameters_sha256"] = OrNull(first.parameters_sha256);
  json["seconds"] = info.seconds;
  json["provenance"] = info.provenance;
  if (!info.again.is_null()) json["again"] = info.again;
  return json;
}

// "1000 iterations in 42 s: loss 2.5 to 0.3; held-out accuracy 91.85 %", and how fast they were.
std::string WhatWasDone(const SummaryInfo& info, const WorkerReport& first) {
  std::string text;
  if (info.interrupted) absl::StrAppendFormat(&text, "interrupted after %d of ", info.iterations);
  absl::StrAppendFormat(&text, "%d iterations in %s", info.input.length.iterations,
                        FormatDuration(info.seconds));
  if (first.first_loss.has_value() && first.last_loss.has_value()) {
    absl::StrAppendFormat(&text, ": loss %.4f to %.4f", *first.first_loss, *first.last_loss);
  }
  if (!first.evaluations.empty()) {
    const EvaluationResult& last = first.evaluations.back();
    absl::StrAppend(&text,
                    last.accuracy.has_value()
                        ? absl::StrFormat("; held-out accuracy %.2f %%", 100 * *last.accuracy)
                        : absl::StrFormat("; held-out perplexity %.3f (%.4f nats)",
                                          last.quality().second, last.loss));
  }
  text += "\n";
  if (first.steps.count > 0) {
    const int64_t tokens = TokensPerSample(info.input.config);
    absl::StrAppendFormat(
        &text, "%.1f %s/s; a step takes %.1f ms (%.1f to %.1f)\n",
        SamplesPerSecond(info, first) * static_cast<double>(tokens > 0 ? tokens : 1),
        tokens > 0 ? "tokens" : "samples", 1e3 * first.steps.median, 1e3 * first.steps.min,
        1e3 * first.steps.max);
  }
  if (first.skipped_updates > 0) {
    absl::StrAppendFormat(&text, "skipped %d of %d updates: gradients not finite",
                          first.skipped_updates, info.iterations);
    const bool dynamic = info.input.config.precision.loss_scale.dynamic;
    text += dynamic ? absl::StrFormat("; loss scale %g\n", first.loss_scale) : "\n";
  }
  return text;
}

std::string TextOf(const SummaryInfo& info, const std::vector<WorkerReport>& reports) {
  std::string text = WhatWasDone(info, reports.front());
  for (const WorkerReport& report : reports) absl::StrAppend(&text, DescribeWorker(report));
  if (!info.interrupted) {
    const auto per_step = [&](uint64_t WorkerReport::*bytes) {
      return SizeText(static_cast<double>(Sum(reports, bytes)) / std::max(info.iterations, 1));
    };
    absl::StrAppendFormat(&text, "sent per step: %s of parameters and sums, %s of other\n",
                          per_step(&WorkerReport::training_bytes),
                          per_step(&WorkerReport::other_bytes));
  }
  absl::StrAppendFormat(&text,
                        "memory: %.0f MiB: the workers' PSS, each at its most, added up (a page "
                        "that processes share is divided among them; the launching process is not "
                        "counted)\n",
                        Sum(reports, &WorkerReport::pss_peak_mib));
  if (!info.rule_text.empty()) absl::StrAppend(&text, info.rule_text, "\n");
  const std::string& digest = reports.front().parameters_sha256;
  if (!digest.empty()) absl::StrAppend(&text, "parameters sha256 ", digest, "\n");
  for (const auto& [what, why] : info.not_written) {
    absl::StrAppend(&text, "not written: ", what, ": ", why, "\n");
  }
  return text;
}

}  // namespace

bool ProgressMeter::Due(int done, Clock::time_point now) const {
  if (done == last_done_) return false;
  if (done == facts_.plan.iterations) return true;
  if (last_done_ == 0 && (facts_.terminal || facts_.config.steps_per_print == 0)) return true;
  if (facts_.terminal) return now - last_ >= std::chrono::milliseconds(200);
  if (facts_.config.steps_per_print > 0) return done % facts_.config.steps_per_print == 0;
  return now - last_ >= std::chrono::seconds(10);
}

std::optional<std::string> ProgressMeter::Line(const RingReport& result, const WorkerReport& so_far,
                                               double waits) {
  const Clock::time_point now = result.when;
  const int done = result.done();
  if (!Due(done, now)) return std::nullopt;
  const double seconds = std::max(std::chrono::duration<double>(now - last_).count(), 1e-9);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double iterations_per_second = (done - last_done_) / seconds;
  const int64_t tokens = TokensPerSample(facts_.config);
  const int64_t units = facts_.config.batch.train_batch * std::max<int64_t>(tokens, 1);
  const double left = elapsed / done * (facts_.plan.iterations - done);
  const Plan& plan = facts_.plan;
  const std::string phase =
      plan.warmup_updates > 0 ? absl::StrCat(" (", ToString(plan.rule_at(Iteration(done - 1))), ")")
                              : "";
  std::string line = absl::StrFormat("iteration %d/%d%s  loss %.4f  lr %.3g", done, plan.iterations,
                                     phase, result.loss(), so_far.lr);
  if (so_far.gradient_norm.has_value()) {
    absl::StrAppendFormat(&line, "  gradient_norm %.3g", *so_far.gradient_norm);
  }
  absl::StrAppendFormat(&line, "  %.0f %s/s  %s left",
                        iterations_per_second * static_cast<double>(units),
                        tokens > 0 ? "tokens" : "samples", FormatDuration(left));
  if (so_far.pss_mib > 0) absl::StrAppendFormat(&line, "  pss %.0f MiB", so_far.pss_mib);
  if (const auto mfu = facts_.mfu(1 / iterations_per_second)) {
    absl::StrAppendFormat(&line, "  mfu %.0f %%", 100 * *mfu);
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

void ProgressScreen::Progress(const std::string& line) {
  if (!terminal_) return Note(line);
  winsize size{};
  std::string shown = line;
  // A line that wraps cannot be redrawn.
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    shown.resize(std::min<size_t>(shown.size(), size.ws_col - 1));
  }
  std::fputs(absl::StrCat("\r\x1b[K", shown).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressScreen::Note(const std::string& line) {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
  std::fputs(absl::StrCat(line, "\n").c_str(), stderr);
  std::fflush(stderr);
}

void ProgressScreen::Clear() {
  if (drawn_) std::fputs("\n", stderr);
  drawn_ = false;
  std::fflush(stderr);
}

std::optional<std::string> NonfiniteWatch::Note(const std::string& what, int done, double value,
                                                absl::string_view from) {
  if (std::isfinite(value)) return std::nullopt;
  const bool first = seen_.empty();
  auto seen = std::ranges::find(seen_, what, &Seen::what);
  if (seen == seen_.end()) seen = seen_.insert(seen, {.what = what, .first = done});
  ++seen->times;
  if (!first) return std::nullopt;
  return absl::StrCat("iteration ", done, "/", iterations_, ": the ", what, " is ",
                      WithoutNanSign(value), from.empty() ? "" : ", ", from);
}

std::optional<std::string> NonfiniteWatch::Summary() const {
  if (seen_.empty()) return std::nullopt;
  std::vector<std::string> parts;
  for (const auto& [what, times, first] : seen_) {
    parts.push_back(absl::StrCat("the ", what, " ", times, times == 1 ? " time" : " times",
                                 ", first in iteration ", first, "/", iterations_));
  }
  return absl::StrCat("not finite: ", absl::StrJoin(parts, "; "));
}

std::string MetricsFlights(const std::string& folder) { return absl::StrCat(folder, "/flight"); }

absl::StatusOr<std::unique_ptr<RunMetrics>> RunMetrics::Create(const RunFacts& facts,
                                                               const std::string& folder,
                                                               const WorkerReport& so_far) {
  std::unique_ptr<RunMetrics> metrics(new RunMetrics(facts));
  const auto take = [&metrics](absl::StatusOr<MetricsWriter> writer) {
    if (writer.ok()) metrics->writers_.push_back(*std::move(writer));
    return writer.status();
  };
  const MetricsMoment begin = metrics->At(facts.plan.first_iteration);
  std::optional<MetricsMoment> resumed;
  if (facts.plan.first_iteration > 0) resumed = begin;
  if (!folder.empty()) {
    RZ_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(folder, "/run.json"), Describe(facts, so_far)));
    RZ_RETURN_IF_ERROR(take(MakeJsonLinesWriter(absl::StrCat(folder, "/metrics.jsonl"), begin)));
    RZ_RETURN_IF_ERROR(
        take(MakeTensorBoardWriter({.output_path = folder, .job_name = "tensorboard"}, begin)));
    RZ_RETURN_IF_ERROR(take(MakeCsvWriter({.output_path = folder, .job_name = "csv"}, begin)));
  }
  const Config& config = facts.config;
  if (config.tensorboard) {
    RZ_RETURN_IF_ERROR(take(MakeTensorBoardWriter(*config.tensorboard, resumed)));
  }
  if (config.csv_monitor) RZ_RETURN_IF_ERROR(take(MakeCsvWriter(*config.csv_monitor, resumed)));
  if (metrics->writers_.empty()) return nullptr;
  return metrics;
}

MetricsMoment RunMetrics::At(int iterations_done) const {
  // A plan that counts no samples has no size of a micro-batch either.
  const Plan& plan = facts_.plan;
  const int64_t samples = plan.samples.per_epoch == 0
                              ? iterations_done * facts_.config.batch.train_batch
                              : SamplesBefore(plan, Iteration(iterations_done));
  return {.samples = samples, .iteration = iterations_done, .wall_seconds = WallSeconds()};
}

absl::Status RunMetrics::WriteAll(int iterations_done, const std::vector<Metric>& scalars) {
  const MetricsMoment moment = At(iterations_done);
  absl::Status status;
  std::erase_if(writers_, [&](const MetricsWriter& write) {
    const absl::Status written = write(moment, scalars);
    status.Update(written);
    return !written.ok();
  });
  return status;
}

absl::Status RunMetrics::Write(const RingReport& result, double lr) {
  const double seconds = std::chrono::duration<double>(result.when - last_).count();
  last_ = result.when;
  std::vector<Metric> scalars = {
      {"Train/Samples/train_loss", result.loss()},
      {"Train/Samples/lr", lr},
      {"Ring/Samples/iteration_ms", 1000 * seconds},
  };
  if (seconds > 0) {
    const double batch = static_cast<double>(facts_.config.batch.train_batch);
    scalars.push_back({"Ring/Samples/samples_per_second", batch / seconds});
    const auto tokens = static_cast<double>(TokensPerSample(facts_.config));
    if (tokens > 0) scalars.push_back({"Ring/Samples/tokens_per_second", batch * tokens / seconds});
    if (facts_.flops > 0) {
      scalars.push_back({"Ring/Samples/model_flops_per_second", facts_.flops / seconds});
    }
    if (const auto mfu = facts_.mfu(seconds)) scalars.push_back({"Ring/Samples/mfu", *mfu});
  }
  scalars.push_back({"Ring/Samples/stale_share", stale_share_});
  for (Metric& scalar : result.Scalars(facts_.plan.workers)) scalars.push_back(std::move(scalar));
  if (facts_.plan.skips())
    scalars.push_back({"Train/Samples/loss_scale", result.total(RingTotals::kLossScale)});
  return WriteAll(result.done(), scalars);
}

absl::Status RunMetrics::WriteNorm(int done, double norm, int skipped_updates) {
  std::vector<Metric> scalars = {{"Ring/Samples/gradient_norm", norm}};
  if (facts_.plan.skips()) {
    scalars.push_back({"Ring/Samples/skipped_updates", static_cast<double>(skipped_updates)});
  }
  return WriteAll(done, scalars);
}

absl::Status RunMetrics::WriteEvaluation(const EvaluationResult& result) {
  const auto [quality, value] = result.quality();
  return WriteAll(result.iteration, {{"Train/Samples/eval_loss", result.loss},
                                     {absl::StrCat("Ring/Samples/eval_", quality), value}});
}

Summary Summarize(const SummaryInfo& info, const std::vector<WorkerReport>& reports) {
  return {.json = Dump(JsonOf(info, reports), 2) + "\n", .text = TextOf(info, reports)};
}

}  // namespace ringzero
