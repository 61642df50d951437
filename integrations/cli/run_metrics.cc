// Names and numbers.
#include "integrations/cli/run_metrics.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/run_setup.h"
#include "integrations/sight/ring_totals.h"
#include "sharding/render.h"
#include "sharding/samples.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

using OrderedJson = nlohmann::ordered_json;

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
  if (!options.folder.empty()) RZ_RETURN_IF_ERROR(metrics->OpenFolder());
  RZ_RETURN_IF_ERROR(metrics->OpenMonitors());
  return metrics;
}

absl::Status RunMetrics::OpenFolder() {
  const std::string& folder = options_.folder;
  RZ_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(folder, "/run.json"), Describe(options_)));
  RZ_ASSIGN_OR_RETURN(auto lines, MakeJsonLinesWriter(absl::StrCat(folder, "/metrics.jsonl")));
  writers_.push_back(std::move(lines));
  RZ_ASSIGN_OR_RETURN(auto board,
                      MakeTensorBoardWriter({.output_path = folder, .job_name = "tensorboard"}));
  writers_.push_back(std::move(board));
  RZ_ASSIGN_OR_RETURN(auto csv, MakeCsvWriter({.output_path = folder, .job_name = "csv"}));
  writers_.push_back(std::move(csv));
  return absl::OkStatus();
}

absl::Status RunMetrics::OpenMonitors() {
  const auto open = [this](const std::optional<MonitorConfig>& monitor,
                           const auto& make) -> absl::Status {
    if (!monitor.has_value()) return absl::OkStatus();
    RZ_ASSIGN_OR_RETURN(auto writer, make(*monitor));
    writers_.push_back(std::move(writer));
    return absl::OkStatus();
  };
  RZ_RETURN_IF_ERROR(open(options_.config.tensorboard, MakeTensorBoardWriter));
  return open(options_.config.csv_monitor, MakeCsvWriter);
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

absl::Status RunMetrics::Write(const RunLog::Loss& loss, double lr) {
  const double seconds = std::chrono::duration<double>(loss.when - last_).count();
  last_ = loss.when;
  std::vector<Scalar> scalars = {
      {"Train/Samples/train_loss", loss.loss},
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
  for (Scalar& scalar : RingTotals::Scalars(loss.totals, options_.plan.workers)) {
    scalars.push_back(std::move(scalar));
  }
  if (options_.plan.skips())
    scalars.push_back({"Train/Samples/loss_scale", loss.totals[RingTotals::kLossScale]});
  absl::Status status = WriteAll(loss.done, scalars);
  const int done = loss.done - RingTotals::GradientLag(options_.plan);
  if (done >= 1) status.Update(WriteNorm(done, loss.totals[RingTotals::kGradientSquares]));
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

}  // namespace ringzero
