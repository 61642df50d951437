// The training loop of one worker.
#include "integrations/cli/train_worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "integrations/cli/cores.h"
#include "integrations/cli/injection.h"
#include "integrations/cli/nonfinite_watch.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/progress.h"
#include "integrations/cli/run_log.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/cli/sent_bytes.h"
#include "integrations/sight/pace.h"
#include "integrations/torch/configured/configured_run.h"
#include "integrations/torch/pass_memory.h"
#include "integrations/torch/ring_model.h"
#include "p2p/failure.h"
#include "sharding/program.h"
#include "zero/rate_curve.h"
#include "zero/trace_stream.h"

namespace ringzero {
namespace {

class Worker {
 public:
  explicit Worker(TrainTask task)
      : task_(std::move(task)),
        config_(task_.config),
        injection_(config_.cyclic.inject, task_.self),
        log_(task_.data.shape().kind == SampleShape::Kind::kTokens ? RunLog::Task::kTokens
                                                                   : RunLog::Task::kClasses),
        laps_(task_.data, BatchesOf(config_, task_.length)),
        progress_({.iterations = task_.length.iterations,
                   .samples_per_iteration = config_.batch.train_batch,
                   .tokens_per_sample = TokensPerSample(config_),
                   .terminal = task_.terminal,
                   .steps_per_print = config_.steps_per_print}),
        totals_(task_.run.planned.plan),
        nonfinite_(task_.length.iterations),
        stragglers_(task_.run.planned.plan.workers) {}

  absl::StatusOr<WorkerReport> Run() {
    absl::Status status = RunAll();
    const bool interrupted = ring_ != nullptr && IsInterrupted(status);
    if (interrupted) status = LeaveEarly();
    if (!status.ok() && task_.desk != nullptr) task_.desk->WriteFailure(task_.self, status);
    if (trace_ != nullptr) {
      trace_->SetOffset(ring_->engine().clock_offset());
      Miss("trace", trace_->Finish());
    }
    SayWhatIsMissing();
    if (!status.ok()) return status;
    return MakeReport(interrupted);
  }

 private:
  absl::Status RunAll() {
    RZ_RETURN_IF_ERROR(CreateRing());
    // The workers are connected; the first iteration may take long.
    if (task_.self.value == 0 && task_.say) task_.say("progress", "training begins");
    StartTrace();
    RZ_RETURN_IF_ERROR(StartMetrics());
    StepMeterOptions measured{.iterations = task_.length.iterations, .laps = plan().laps};
    if (task_.costs_from.has_value()) measured.left_out = task_.costs_from->value;
    meter_.emplace(measured, ring_->engine().stats());
    pace_.emplace(config_.batch.micro_batch, ring_->engine().stats());
    while (true) {
      RZ_ASSIGN_OR_RETURN(const LapTask lap, ring_->NextLap());
      if (lap.kind == LapTask::Kind::kDone) break;
      RZ_RETURN_IF_ERROR(Guard([&]() -> absl::Status {
        return injection_.RunLap([&]() -> absl::Status { return RunLap(lap); });
      }));
      meter_->EndLap(lap, ring_->engine().stats());
      pace_->EndLap(lap, ring_->engine().stats());
      if (IsLast(lap)) KeepSchedule("the last iteration is over");
      // By now worker 0 answers.
      if (lap.iteration.value == 0 && lap.lap.value == 0) ring_->engine().MeasureClock();
      SayWhatIsMissing();
      if (task_.self.value != 0) continue;
      if (const absl::Status said = SayWhatIsNew(); !said.ok()) {
        ring_->engine().Abort(said);
        return said;
      }
    }
    injection_.Reach(InjectConfig::Point::kFinish);
    RZ_RETURN_IF_ERROR(ring_->Finish());
    if (task_.self.value == 0) {
      RZ_RETURN_IF_ERROR(SayWhatIsNew());
      RZ_RETURN_IF_ERROR(SayWhatIsNotFinite());
    }
    if (metrics_ != nullptr) WriteLastNorms();
    return absl::OkStatus();
  }

  // What was done is told, and kept for the report.
  absl::Status LeaveEarly() {
    log_.Close();  // the engine's threads may still report
    if (task_.self.value == 0) RZ_RETURN_IF_ERROR(SayWhatIsNew());
    KeepSchedule("interrupted");
    return absl::OkStatus();
  }

  const Plan& plan() const { return task_.run.planned.plan; }

  absl::Status CreateRing() {
    RingModelOptions options;
    options.layers = task_.run.layers;
    options.description = task_.run.model;
    options.planned = task_.run.planned;
    EngineOptions& engine = options.engine;
    engine.seed = config_.seed;
    engine.self = task_.self;
    engine.transport = std::move(task_.transport);
    engine.optimizer = config_.optimizer;
    engine.metrics_count = kMetricsCount;
    engine.on_report = log_.Listener();
    engine.gradient_norms = true;
    options.products_first = config_.cyclic.products_first;
    engine.update_slowness = config_.cyclic.inject.update_slowness;
    for (const auto& [t, stage, micro_batch] : config_.cyclic.inject.overflows) {
      engine.overflows.push_back({Iteration(t), StageId(stage), micro_batch});
    }
    engine.wait_timeout = config_.cyclic.wait_timeout;
    if (task_.desk != nullptr) engine.on_failure = [desk = task_.desk] { desk->Wake(); };
    if (!config_.cyclic.flight_recorder) engine.recorder.capacity = 0;
    if (!task_.trace_parts.empty()) engine.recorder.capacity = kTraceEvents;
    if (task_.costs_from.has_value()) {
      costs_ = std::make_unique<OpCosts>(
          OpCostsOptions{.stages = plan().stage_count(), .from = *task_.costs_from});
      engine.costs = costs_.get();
    }
    if (config_.cyclic.track_activations) {
      live_ = std::make_unique<LiveTensorBytes>();
      options.on_stage_done = [this](const StageDone& done) { TrackActivations(done); };
    }
    if (!task_.init.empty()) {
      RZ_ASSIGN_OR_RETURN(init_, InitFile::Open(task_.init, task_.run.model));
      options.preset = init_->Preset();
    }
    RZ_ASSIGN_OR_RETURN(ring_, RingModel::Create(std::move(options)));
    if (task_.desk != nullptr) {
      Engine* const engine = &ring_->engine();
      seat_.emplace(task_.desk->Add(
          task_.self, {.take = [engine](const std::string& why) { return engine->Flight(why); },
                       .missing = [this](const absl::Status& why) { Miss("flight records", why); },
                       .interrupt = [engine] { engine->Abort(Interrupted()); }}));
    }
    return absl::OkStatus();
  }

  // An output that cannot be written is no reason to lose the run. Any thread.
  void Miss(const std::string& what, const absl::Status& why) {
    if (why.ok()) return;
    std::lock_guard lock(not_written_mutex_);
    not_written_.emplace(what, why.message());
  }

  void SayWhatIsMissing() {
    std::lock_guard lock(not_written_mutex_);
    if (not_written_said_ == not_written_.size()) return;
    not_written_said_ = not_written_.size();
    if (!task_.say) return;
    for (const auto& [what, why] : not_written_) {
      task_.say("not_written", absl::StrCat(what, ": ", why));  // who has heard it hears no more
    }
  }

  void StartTrace() {
    if (task_.trace_parts.empty()) return;
    const FlightRecord head{.worker = task_.self,
                            .workers = plan().workers,
                            .why = "a trace was asked for",
                            .clock = SteadyClockName()};
    const TraceIterations& asked = task_.trace_iterations;
    const int count = asked.on_signal;
    auto trace = TraceStream::Create({.folder = task_.trace_parts,
                                      .head = head,
                                      .recorder = &ring_->engine().recorder(),
                                      .window = {.from = Iteration(asked.first - 1),
                                                 .to = Iteration(count > 0 ? 0 : asked.last)}});
    Miss("trace", trace.status());
    if (!trace.ok()) return;
    trace_ = *std::move(trace);
    if (count > 0 && task_.desk != nullptr) {
      task_.desk->TraceWith(task_.self, [this, count] { trace_->OpenWindow(count); });
    }
  }

  void TrackActivations(const StageDone& done) {
    live_->HandedOver(done.gradient_bytes);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    activations_.push_back({.seconds = std::chrono::duration<double>(now).count(),
                            .bytes = live_->bytes(),
                            .peak = live_->TakePeak()});
  }

  // As fast as the workers' cores together can multiply.
  double PeakFlops() const {
    const double workers = plan().workers;
    const double here = std::min(UsableCores() / config_.cyclic.threads, workers);
    return (task_.launched ? workers : here) * task_.worker_flops;
  }

  absl::Status StartMetrics() {
    if (task_.self.value != 0) return absl::OkStatus();
    numbers_.flops = task_.run.sample_flops * static_cast<double>(config_.batch.train_batch);
    numbers_.peak_flops = PeakFlops();
    if (!RunMetrics::Wanted(config_, task_.metrics)) return absl::OkStatus();
    RZ_ASSIGN_OR_RETURN(const MemoryForecast forecast, ForecastRun(config_, task_.run));
    auto metrics = RunMetrics::Create({.folder = task_.metrics,
                                       .config = config_,
                                       .plan = plan(),
                                       .parameters = task_.run.model.parameter_count,
                                       .flops = numbers_.flops,
                                       .peak_flops = numbers_.peak_flops,
                                       .forecast = forecast.host()});
    Miss("metrics", metrics.status());
    if (metrics.ok()) metrics_ = *std::move(metrics);
    return absl::OkStatus();
  }

  bool IsLast(const LapTask& lap) const {
    return lap.kind == LapTask::Kind::kTrain && lap.iteration.value + 1 == plan().iterations &&
           lap.lap.value + 1 == plan().laps;
  }

  // For the report: the last events of training, before an evaluation's take their place.
  void KeepSchedule(const std::string& why) {
    if (task_.metrics.empty()) return;
    Miss("flight records",
         WriteFlightFile(MetricsFlights(task_.metrics), ring_->engine().Flight(why)));
  }

  absl::Status RunLap(const LapTask& lap) {
    switch (lap.kind) {
      case LapTask::Kind::kTrain: return Train(lap);
      case LapTask::Kind::kEvaluate: return Evaluate(lap);
      case LapTask::Kind::kCollect: return Collect();
      case LapTask::Kind::kDone: break;
    }
    return absl::OkStatus();
  }

  RingTotals::Known Known(const LapTask& lap) {
    RingTotals::Known known;
    if (lap.kind != LapTask::Kind::kTrain) return known;
    known.off_core_seconds = pace_->TakeOffCoreSeconds();
    const bool last_lap = lap.lap.value + 1 == plan().laps;
    if (last_lap && task_.pss_mib) known.pss_mib = task_.pss_mib();
    if (lap.lap.value > 0) return known;
    if (RingTotals::PaceOf(plan(), lap.iteration) == task_.self) known.pace = pace_->pace();
    const Engine& engine = ring_->engine();
    const Iteration of(lap.iteration.value - RingTotals::GradientLag(plan()));
    if (of.value >= 0) known.squares = engine.GradientSquares(of);
    if (task_.self.value == 0) known.loss_scale = engine.LossScaleOf(lap.iteration);
    return known;
  }

  // Quality, and what is summed over the ring besides.
  std::vector<double> Metrics(const LapTask& lap, std::vector<double> quality) {
    RingTotals::Known known = Known(lap);
    if (!std::isfinite(quality[0])) {
      known.nonfinite_losses = 1;
      known.nonfinite_number = lap.micro_batch;
    }
    const std::vector<double> totals = totals_.Take(lap, ring_->engine().stats(), known);
    quality.insert(quality.end(), totals.begin(), totals.end());
    return quality;
  }

  absl::Status Train(const LapTask& lap) {
    if (lap.missing()) {
      return ring_->SkipMicroBatch(Metrics(lap, std::vector<double>(kQualityCount)));
    }
    return ring_->EndMicroBatch(Metrics(lap, laps_.Train(*ring_, lap)));
  }

  absl::Status Evaluate(const LapTask& lap) {
    return ring_->EndMicroBatch(Metrics(lap, laps_.Evaluate(*ring_, lap.micro_batch)));
  }

  absl::Status Collect() {
    RZ_ASSIGN_OR_RETURN(
        const std::unique_ptr<ParameterCollector> collector,
        ParameterCollector::Create(task_.dump_parameters, task_.run.planned.layouts));
    RZ_RETURN_IF_ERROR(ring_->Collect(
        [&](const NamedValues& values) -> absl::Status { return collector->Add(values); }));
    RZ_ASSIGN_OR_RETURN(digest_, collector->Finish());
    dump_trouble_ = collector->trouble();
    return absl::OkStatus();
  }

  absl::Status SayWhatIsNew() {
    numbers_.waits = WaitsOf(ring_->engine().stats());
    for (const RunLog::Loss& loss : log_.TakeLosses()) {
      TakeNumbers(loss);
      const std::optional<std::string> line = progress_.Line(loss, numbers_);
      if (line.has_value() && task_.say) task_.say("progress", *line);
      if (metrics_ != nullptr) Miss("metrics", metrics_->Write(loss, numbers_.lr));
      WatchPace(loss);
      RZ_RETURN_IF_ERROR(WatchNorm(loss.done - RingTotals::GradientLag(plan()),
                                   loss.totals[RingTotals::kGradientSquares]));
      const std::string from = std::isfinite(loss.loss) ? "" : OriginOf(loss, plan());
      RZ_RETURN_IF_ERROR(Watch(NonfiniteWatch::Value::kLoss, loss.done, loss.loss, from));
    }
    for (const EvaluationResult& result : log_.TakeEvaluations()) {
      if (metrics_ != nullptr) Miss("metrics", metrics_->WriteEvaluation(result));
      RZ_RETURN_IF_ERROR(
          Watch(NonfiniteWatch::Value::kHeldOutLoss, result.iteration, result.loss, ""));
    }
    for (const std::string& note : log_.TakeNotes()) {
      if (task_.say) task_.say("note", note);
    }
    return absl::OkStatus();
  }

  void TakeNumbers(const RunLog::Loss& loss) {
    const OptimizerOptions& optimizer = config_.optimizer;
    numbers_.lr =
        RateAt(optimizer.curve, optimizer.learning_rate, loss.done - 1 - skipped_updates_).rate;
    numbers_.pss_mib = loss.totals[RingTotals::kPss];
    if (loss.done <= RingTotals::GradientLag(plan()) || !plan().exchange) return;
    const double squares = loss.totals[RingTotals::kGradientSquares];
    numbers_.gradient_norm = std::sqrt(squares);
    if (plan().skips() && !std::isfinite(squares)) ++skipped_updates_;
  }

  void WatchPace(const RunLog::Loss& loss) {
    const WorkerId worker = RingTotals::PaceOf(plan(), Iteration(loss.done - 1));
    for (const std::string& line :
         stragglers_.Note(worker.value, loss.when, RingTotals::PaceIn(loss.totals))) {
      if (task_.say) task_.say("note", absl::StrCat("warning: ", line));
    }
  }

  // Those that no report of a later iteration could tell.
  void WriteLastNorms() {
    const int end = plan().iterations;
    for (int t = std::max(0, end - RingTotals::GradientLag(plan())); t < end; ++t) {
      const double squares = ring_->engine().GradientSquares(Iteration(t));
      Miss("metrics", metrics_->WriteNorm(t + 1, squares));
    }
  }

  // Says it, or ends the run, at the first value that is not finite.
  absl::Status Watch(NonfiniteWatch::Value what, int done, double value, const std::string& from) {
    const std::optional<std::string> line = nonfinite_.Note(what, done, value, from);
    if (!line.has_value()) return absl::OkStatus();
    if (config_.cyclic.on_nonfinite == CyclicConfig::OnNonfinite::kStop) {
      return absl::OutOfRangeError(absl::StrCat(*line, "; cyclic.on_nonfinite is stop"));
    }
    if (task_.say) task_.say("note", absl::StrCat("warning: ", *line));
    return absl::OkStatus();
  }

  // A dynamic loss scale is found by overflows: those are counted as skipped updates.
  absl::Status WatchNorm(int done, double squares) {
    if (config_.precision.loss_scale.dynamic || std::isfinite(squares)) return absl::OkStatus();
    const std::optional<StageId> stage = ring_->engine().NonfiniteStage(Iteration(done - 1));
    std::vector<std::string> words;
    if (stage.has_value()) {
      words.push_back(
          absl::StrCat("from stage ", stage->value, " (", plan().stage(*stage).name, ")"));
    }
    if (plan().skips()) words.push_back("and its update is skipped");
    return Watch(NonfiniteWatch::Value::kGradientNorm, done, std::sqrt(squares),
                 absl::StrJoin(words, ", "));
  }

  // At the end; of the last iterations' norms, too, which no report tells.
  absl::Status SayWhatIsNotFinite() {
    const int end = plan().iterations;
    for (int t = std::max(0, end - RingTotals::GradientLag(plan())); t < end; ++t) {
      RZ_RETURN_IF_ERROR(WatchNorm(t + 1, ring_->engine().GradientSquares(Iteration(t))));
    }
    const std::optional<std::string> line = nonfinite_.Summary();
    if (line.has_value() && task_.say) task_.say("note", absl::StrCat("warning: ", *line));
    return absl::OkStatus();
  }

  // What the process has used beside what was counted went to messages.
  absl::StatusOr<MeasuredCosts> CostsOf(const MeasuredSteps& steps) const {
    const int iterations = static_cast<int>(steps.seconds.size());
    if (iterations == 0) return absl::InternalError("no iteration was measured");
    MeasuredCosts costs{.lap_nanoseconds = costs_->lap_nanoseconds()};
    const std::vector<StageTicks> means = costs_->Means();
    for (int j = 0; j < plan().stage_count(); ++j) {
      costs.stages.push_back({plan().stages[j].name, means[j]});
    }
    const auto used = static_cast<int64_t>(1e9 * steps.resources.cpu_seconds);
    costs.other_nanoseconds = std::max<int64_t>(0, used - costs_->total_nanoseconds()) / iterations;
    const Iteration last(plan().iterations - 1);
    RZ_ASSIGN_OR_RETURN(const Program program,
                        MakeProgram(plan(), task_.self, {last, Iteration(plan().iterations)}));
    costs.messages =
        static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                       [](const Op& op) { return op.kind == OpKind::kSend; }));
    return costs;
  }

  // Of an interrupted run: what there is of it.
  absl::StatusOr<WorkerReport> MakeReport(bool interrupted) {
    const EngineStats stats = ring_->engine().stats();
    SentBytes sent;
    if (!interrupted) {
      RZ_ASSIGN_OR_RETURN(sent, SplitSentBytes(plan(), task_.self, stats.transport));
    }
    const MeasuredSteps steps = meter_.has_value() ? meter_->steps() : MeasuredSteps();
    WorkerReport report;
    report.worker = task_.self.value;
    report.interrupted = interrupted;
    {
      std::lock_guard lock(not_written_mutex_);
      report.not_written = not_written_;
    }
    std::vector<double> seconds = steps.seconds;
    std::sort(seconds.begin(), seconds.end());
    report.measured = static_cast<int>(seconds.size());
    if (!seconds.empty()) {
      const size_t half = seconds.size() / 2;
      report.step_median =
          seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
      report.step_min = seconds.front();
      report.step_max = seconds.back();
      report.step_mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) /
                         static_cast<double>(seconds.size());
    }
    report.waits = steps.waits;
    report.on_core_seconds = steps.on_core_seconds;
    report.resources = steps.resources;
    report.training_bytes = sent.training;
    report.other_bytes = sent.other;
    report.copied_bytes = stats.transport.bytes_copied;
    report.memory = stats.memory;
    report.skipped_updates = stats.skipped_updates;
    report.loss_scale = stats.loss_scale;
    RZ_ASSIGN_OR_RETURN(const MemoryForecast forecast, ForecastRun(config_, task_.run));
    report.forecast = forecast.host();
    report.activations = std::move(activations_);
    if (costs_ != nullptr) {
      RZ_ASSIGN_OR_RETURN(report.costs, CostsOf(steps));
    }
    report.parameters = task_.run.model.parameter_count;
    report.lr = numbers_.lr;
    report.pss_mib = numbers_.pss_mib;
    report.gradient_norm = numbers_.gradient_norm;
    if (!interrupted && plan().exchange && plan().iterations > 0) {
      const Iteration last(plan().iterations - 1);
      report.gradient_norm = std::sqrt(ring_->engine().GradientSquares(last));
    }
    if (numbers_.flops > 0 && numbers_.peak_flops > 0 && report.step_mean > 0) {
      report.mfu = numbers_.flops / report.step_mean / numbers_.peak_flops;
    }
    report.iterations = log_.iterations();
    report.dump_trouble = dump_trouble_;
    report.first_loss = log_.first_loss();
    report.last_loss = log_.last_loss();
    report.evaluations = log_.evaluations();
    report.parameters_sha256 = digest_;
    return report;
  }

  TrainTask task_;
  const Config& config_;
  Injection injection_;
  RunLog log_;  // outlives ring_, which reports to it
  LapRunner laps_;
  ProgressMeter progress_;
  RingTotals totals_;
  NonfiniteWatch nonfinite_;
  StragglerWatch stragglers_;
  std::optional<PaceMeter> pace_;
  ProgressNumbers numbers_;  // of the last report
  int skipped_updates_ = 0;  // of those whose norm has been told
  std::optional<StepMeter> meter_;
  std::mutex not_written_mutex_;
  NotWritten not_written_;
  size_t not_written_said_ = 0;
  std::unique_ptr<RunMetrics> metrics_;
  std::unique_ptr<InitFile> init_;  // ring_ reads these two
  std::unique_ptr<OpCosts> costs_;
  std::unique_ptr<RingModel> ring_;
  std::unique_ptr<TraceStream> trace_;    // these two look into the ring's engine
  std::optional<FlightDesk::Seat> seat_;  // and into trace_
  std::unique_ptr<LiveTensorBytes> live_;
  std::vector<ActivationPoint> activations_;
  std::string digest_;
  std::string dump_trouble_;
};

}  // namespace

absl::StatusOr<WorkerReport> TrainWorker(TrainTask task) { return Worker(std::move(task)).Run(); }

}  // namespace ringzero
