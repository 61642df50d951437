// The training loop of one worker.
#include "integrations/cli/train_worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "base/status.h"
#include "integrations/checkpoint/checkpoint.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/sight/pace.h"
#include "integrations/torch/measurements.h"
#include "integrations/torch/models/configured_run.h"
#include "integrations/torch/ring_model.h"
#include "p2p/failure.h"
#include "p2p/job/limits.h"
#include "p2p/transport_decorator.h"
#include "sharding/op.h"
#include "sharding/program/program.h"
#include "sharding/rules/schedule.h"
#include "zero/config/tier.h"
#include "zero/flight/flight_recorder.h"
#include "zero/optimizer/rate_curve.h"

namespace ringzero {
namespace {

using Action = InjectConfig::Action;
using Point = InjectConfig::Point;

constexpr int kSlowness = 10;
constexpr std::chrono::seconds kOneSignal(1);
constexpr int kEndSignal = 1 << 12;  // in RingTotals::kSignals; more than there are workers

// With the time, so that a test can count seconds from there.
void SayInjected(const char* what) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::fprintf(stderr, "ringzero: injected: %s at %lld.%09ld\n", what,
               static_cast<long long>(now.tv_sec), now.tv_nsec);
}

void Act(Action action) {
  SayInjected(action == Action::kKill ? "kill" : "stop");
  kill(getpid(), action == Action::kKill ? SIGKILL : SIGSTOP);
}

// Splits the measured bytes of a whole run of `plan` into the report's training_bytes and
// other_bytes (evaluations, the final collection, running statistics, metrics, tokens). Injections
// for evaluations and for the collection share a channel with the injections for training: the plan
// says how many there are.
absl::Status SplitSentBytes(const Plan& plan, const std::vector<uint64_t>& sent,
                            WorkerReport& report) {
  for (const uint64_t bytes : sent) report.other_bytes += bytes;
  for (const Channel channel : kTrainingChannels) {
    const auto kind = static_cast<size_t>(channel);
    if (kind >= sent.size()) continue;
    report.training_bytes += sent[kind];
    report.other_bytes -= sent[kind];
  }
  if (!plan.exchange || plan.workers == 1) return absl::OkStatus();
  std::vector<int> evaluated = {plan.iterations};  // the collection follows the last iteration
  for (int t = plan.first_iteration; t < plan.iterations; ++t) {
    if (IsEvaluated(plan, Version(t))) evaluated.push_back(t);
  }
  for (const int t : evaluated) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, WorkerId(report.worker),
                                                           {Iteration(t), Iteration(t + 1)}));
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kSend || op.channel != Channel::kInject) continue;
      if (op.copy != Copy::kEvaluation) continue;
      const auto bytes = static_cast<uint64_t>(plan.stage(op.stage).parameter_bytes);
      report.training_bytes -= bytes;
      report.other_bytes += bytes;
    }
  }
  return absl::OkStatus();
}

class Worker {
 public:
  explicit Worker(TrainTask task)
      : task_(std::move(task)),
        config_(task_.input.config),
        injection_(config_.cyclic.inject, self()),
        laps_(*task_.input.data, BatchesOf(config_, task_.input.length)),
        facts_(FactsOf(task_)),
        progress_(facts_),
        totals_(plan()),
        nonfinite_(plan().iterations),
        stragglers_(plan().workers) {
    const auto& resumed = task_.input.resumed;
    if (resumed != nullptr && resumed->state().loss_scale.has_value()) {
      report_.skipped_updates = resumed->state().loss_scale->skipped;
    }
  }

  absl::StatusOr<WorkerReport> Run() {
    absl::Status status = RunAll();
    const bool interrupted = ring_ != nullptr && IsInterrupted(status);
    if (interrupted) {  // what was done is told, and kept for the report
      inbox_.Close();   // the engine's threads may still report
      status = self().value == 0 ? SayWhatIsNew() : absl::OkStatus();
      if (status.ok()) KeepSchedule("interrupted");
    }
    if (!status.ok() && task_.desk != nullptr) task_.desk->WriteFailure(self(), status);
    if (trace_ != nullptr) {
      trace_->SetOffset(ring_->engine().clock_offset());
      Miss("trace", trace_->Finish());
    }
    if (!status.ok()) return status;
    return MakeReport(interrupted || ring_->engine().iterations() < plan().iterations);
  }

 private:
  absl::Status RunAll() {
    RZ_RETURN_IF_ERROR(CreateRing());
    // The workers are connected; the first iteration may take long.
    if (self().value == 0) Say("progress", "training begins");
    StartTrace();
    RZ_ASSIGN_OR_RETURN(const MemoryForecast forecast, ForecastRun(config_, run()));
    report_.forecast = forecast.host();
    report_.parameters = run().model.parameter_count;
    StartMetrics();
    LapMeter::Options measured{.iterations = plan().iterations,
                               .laps = plan().laps,
                               .micro_batch = config_.batch.micro_batch};
    if (task_.costs_from.has_value()) measured.left_out = task_.costs_from->value;
    meter_.emplace(measured, Usage::Now(ring_->engine().stats()));
    while (true) {
      RZ_ASSIGN_OR_RETURN(const LapTask lap, ring_->NextLap());
      if (lap.kind == LapTask::Kind::kDone) break;
      RZ_RETURN_IF_ERROR(Guard([&] { return injection_.RunLap([&] { return RunLap(lap); }); }));
      meter_->EndLap(lap, Usage::Now(ring_->engine().stats()));
      if (IsLast(lap)) KeepSchedule("the last iteration is over");
      // By now worker 0 answers.
      if (lap.iteration.value == plan().first_iteration && lap.lap.value == 0)
        ring_->engine().MeasureClock();
      if (self().value != 0) continue;
      AskForSaves();
      if (const absl::Status said = SayWhatIsNew(); !said.ok()) {
        ring_->engine().Abort(said);
        return said;
      }
    }
    injection_.Reach(InjectConfig::Point::kFinish);
    RZ_RETURN_IF_ERROR(ring_->Finish());
    return self().value == 0 ? SayTheRest() : absl::OkStatus();
  }

  WorkerId self() const { return task_.seat.self; }
  const PlannedRun& run() const { return task_.seat.run; }
  const Plan& plan() const { return run().planned.plan; }

  // What the run begins with, its checkpoints, and where states are that stream.
  absl::Status OpenFiles(RingModelOptions& options) {
    EngineOptions& engine = options.engine;
    if (!task_.line.init.empty()) {
      std::vector<std::string> strays;  // have been told before
      RZ_ASSIGN_OR_RETURN(
          options.preset,
          OpenInitFile(task_.line.init, run().model, task_.line.init_partial ? &strays : nullptr));
    }
    if (const auto& resumed = task_.input.resumed; resumed != nullptr) {
      RZ_ASSIGN_OR_RETURN(options.preset, PresetOf(resumed->path(), resumed->model(), run().model));
      engine.beginning = BeginningOf(resumed, plan(), run().planned.layouts, config_.optimizer);
    }
    if (plan().checkpoint.any()) {
      RZ_ASSIGN_OR_RETURN(engine.saver, MakeSaver());
    }
    RZ_ASSIGN_OR_RETURN(OpenedTier tier, OpenTier(config_, run().planned, self()));
    engine.tier = std::move(tier.options);
    for (const std::string& note : tier.notes) {
      if (self().value == 0) Say("note", note);
    }
    return absl::OkStatus();
  }

  absl::Status CreateRing() {
    RingModelOptions options;
    options.layers = run().layers;
    options.planned = run().planned;
    EngineOptions& engine = options.engine;
    engine.seed = config_.seed;
    engine.self = self();
    engine.transport = std::move(task_.seat.transport);
    engine.optimizer = config_.optimizer;
    engine.metrics_count = kMetricsCount;
    engine.on_report = inbox_.Listener();
    engine.gradient_norms = true;
    options.products_first = config_.cyclic.products_first;
    engine.update_slowness = config_.cyclic.inject.update_slowness;
    for (const auto& [t, stage, micro_batch] : config_.cyclic.inject.overflows) {
      engine.overflows.push_back({Iteration(t), StageId(stage), micro_batch});
    }
    engine.wait_timeout = config_.cyclic.wait_timeout;
    if (task_.desk != nullptr) engine.on_failure = [desk = task_.desk] { desk->Wake(); };
    if (!config_.cyclic.flight_recorder) engine.recorder_events = 0;
    if (!task_.line.trace.empty()) engine.recorder_events = kTraceEvents;
    if (task_.costs_from.has_value()) {
      costs_ = std::make_unique<OpCosts>(plan().stage_count(), *task_.costs_from);
      engine.costs = costs_.get();
    }
    if (config_.cyclic.track_activations) {
      live_ = std::make_unique<LiveTensorBytes>();
      options.on_stage_done = [this](const StageDone& done) {
        live_->HandedOver(done.gradient_bytes);
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        report_.activations.push_back({.seconds = std::chrono::duration<double>(now).count(),
                                       .bytes = live_->bytes(),
                                       .peak = live_->TakePeak()});
      };
    }
    RZ_RETURN_IF_ERROR(OpenFiles(options));
    RZ_ASSIGN_OR_RETURN(ring_, RingModel::Create(std::move(options)));
    if (task_.desk != nullptr) {
      Engine* const running = &ring_->engine();
      seat_ = task_.desk->Add(
          self(), {.take = [running](const std::string& why) { return running->Flight(why); },
                   .written = [this](const absl::Status& why) { Miss("flight records", why); },
                   .interrupt =
                       [this, running] {
                         hears_end_ = true;
                         if (!saves_on_signal()) running->Abort(Interrupted());
                       }});
      if (saves_on_signal()) task_.desk->TraceWith(self(), [this] { hears_save_ = true; });
    }
    return absl::OkStatus();
  }

  bool saves_on_signal() const {
    return plan().checkpoint.on_request && config_.cyclic.checkpoint.on_signal;
  }

  // Worker 0, after each lap: asks for what a signal or the time wants. What cannot be asked for in
  // this iteration is asked for in the next one.
  void AskForSaves() {
    if (!plan().checkpoint.on_request) return;
    const auto interval = config_.cyclic.checkpoint.interval;
    const auto now = std::chrono::steady_clock::now();
    if (interval.count() > 0 && now - asked_at_ >= interval) saves_ = true;
    Engine& engine = ring_->engine();
    if (saves_ || (ends_ && !end_.has_value())) {
      const absl::StatusOr<Version> saved = engine.Ask(Request::kCheckpoint);
      if (saved.ok()) {
        asked_at_ = now;
        saves_ = false;
      }
    }
    if (!ends_ || end_.has_value()) return;
    const absl::StatusOr<Version> last = engine.Ask(Request::kEnd);
    if (!last.ok()) return;
    end_ = *last;
    Say("note", absl::StrCat("a signal came: the run ends after iteration ", last->value));
  }

  absl::StatusOr<std::unique_ptr<Saver>> MakeSaver() {
    CheckpointSaverOptions options{
        .folder = config_.cyclic.checkpoint.folder,
        .keep = config_.cyclic.checkpoint.keep,
        .run = StateOf(task_.input, run()),
        .layouts = run().planned.layouts,
        .optimizer = config_.optimizer,
        .files = {.wait_timeout = config_.cyclic.wait_timeout / 2},  // before an update's own
        .failed =
            [this](Version v, const absl::Status& why) {
              const int worker = self().value;  // 0 speaks of the whole
              const std::string by = worker == 0 ? "" : absl::StrCat(", worker ", worker);
              Miss(absl::StrCat("checkpoint of iteration ", v.value, by), why);
            },
        .note =
            [this](const std::string& note) {
              Say("note", absl::StrCat("worker ", self().value, ": ", note));
            },
        .moment = [this] { injection_.ReachSave(); }};
    if (const auto slow = config_.cyclic.checkpoint.bandwidth; slow.has_value()) {
      options.files.decorate = [slow](std::unique_ptr<IoEngine> engine) {
        return MakeThrottled(std::move(engine), 1e9 * *slow);
      };
    }
    return MakeCheckpointSaver(std::move(options));
  }

  // An output that cannot be written is no reason to lose the run. Any thread.
  void Miss(const std::string& what, const absl::Status& why) {
    if (why.ok()) return;
    const MutexLock lock(not_written_mutex_);
    if (!not_written_.emplace(what, why.message()).second) return;
    Say("not_written", absl::StrCat(what, ": ", why.message()));
  }

  void StartTrace() {
    if (task_.line.trace.empty()) return;
    const FlightRecord head{.worker = self(),
                            .workers = plan().workers,
                            .why = "a trace was asked for",
                            .clock = SteadyClockName()};
    const TraceIterations asked = task_.line.trace_iterations.value_or(TraceIterations());
    const int count = asked.on_signal;
    auto trace = TraceStream::Create({.folder = TraceParts(task_.line.trace),
                                      .head = head,
                                      .recorder = &ring_->engine().recorder(),
                                      .window = {.from = Iteration(asked.first - 1),
                                                 .to = Iteration(count > 0 ? 0 : asked.last)}});
    Miss("trace", trace.status());
    if (!trace.ok()) return;
    trace_ = *std::move(trace);
    if (count > 0 && task_.desk != nullptr) {
      task_.desk->TraceWith(self(), [this, count] { trace_->OpenWindow(count); });
    }
  }

  static RunFacts FactsOf(const TrainTask& task) {
    const Config& config = task.input.config;
    const double workers = config.cyclic.workers;
    const double here = std::min(UsableCores() / config.cyclic.threads, workers);
    return {.config = config,
            .plan = task.seat.run.planned.plan,
            .terminal = task.terminal,
            .flops = task.seat.run.sample_flops * static_cast<double>(config.batch.train_batch),
            .peak_flops = (task.launched ? workers : here) * task.worker_flops};
  }

  void StartMetrics() {
    if (self().value != 0) return;
    auto metrics = RunMetrics::Create(facts_, task_.line.metrics, report_);
    Miss("metrics", metrics.status());
    if (metrics.ok()) metrics_ = *std::move(metrics);
  }

  bool IsLast(const LapTask& lap) const {
    return lap.kind == LapTask::Kind::kTrain &&
           lap.iteration.value + 1 == ring_->engine().iterations() &&
           lap.lap.value + 1 == plan().laps;
  }

  // For the report: the last events of training, before the events of an evaluation replace them.
  void KeepSchedule(const std::string& why) {
    if (task_.line.metrics.empty()) return;
    Miss("flight records",
         WriteFlightFile(MetricsFlights(task_.line.metrics), ring_->engine().Flight(why)));
  }

  absl::Status RunLap(const LapTask& lap) {
    switch (lap.kind) {
      case LapTask::Kind::kTrain:
        if (lap.missing()) {
          return ring_->SkipMicroBatch(Metrics(lap, std::vector<double>(kQualityCount)));
        }
        return ring_->EndMicroBatch(Metrics(lap, laps_.Train(*ring_, lap)));
      case LapTask::Kind::kEvaluate:
        return ring_->EndMicroBatch(Metrics(lap, laps_.Evaluate(*ring_, lap.micro_batch)));
      case LapTask::Kind::kCollect: return Collect();
      case LapTask::Kind::kDone: break;
    }
    return absl::OkStatus();
  }

  // Adds what RingTotals cannot know of a lap of training.
  void AddKnown(const LapTask& lap, std::vector<double>& totals) {
    totals[RingTotals::kOffCore] = meter_->TakeOffCoreSeconds();
    if (hears_save_.exchange(false)) totals[RingTotals::kSignals] += 1;
    if (hears_end_.exchange(false)) totals[RingTotals::kSignals] += kEndSignal;
    const bool last_lap = lap.lap.value + 1 == plan().laps;
    if (last_lap && task_.pss_mib) totals[RingTotals::kPss] = task_.pss_mib();
    if (lap.lap.value > 0) return;
    if (RingTotals::PaceOf(plan(), lap.iteration) == self()) {
      RingTotals::SetPace(meter_->pace(), totals);
    }
    const Engine& engine = ring_->engine();
    const Iteration of(lap.iteration.value - RingTotals::GradientLag(plan()));
    if (of.value >= plan().first_iteration)
      totals[RingTotals::kGradientSquares] = engine.GradientSquares(of);
    if (self().value == 0) totals[RingTotals::kLossScale] = engine.LossScaleOf(lap.iteration);
  }

  // `quality`, followed by RingTotals' values, which are summed over the ring, too.
  std::vector<double> Metrics(const LapTask& lap, std::vector<double> quality) {
    std::vector<double> totals = totals_.Take(lap, ring_->engine().stats());
    if (lap.kind == LapTask::Kind::kTrain) {
      AddKnown(lap, totals);
      if (!std::isfinite(quality[0])) {
        totals[RingTotals::kNonfiniteLosses] = 1;
        totals[RingTotals::kNonfiniteNumbers] = lap.micro_batch;
      }
    }
    quality.insert(quality.end(), totals.begin(), totals.end());
    return quality;
  }

  absl::Status Collect() {
    RZ_ASSIGN_OR_RETURN(
        const std::unique_ptr<ParameterCollector> collector,
        ParameterCollector::Create(task_.line.dump_parameters, run().planned.layouts));
    RZ_RETURN_IF_ERROR(
        ring_->Collect([&](const NamedValues& values) { return collector->Add(values); }));
    RZ_ASSIGN_OR_RETURN(report_.parameters_sha256, collector->Finish());
    report_.dump_trouble = collector->trouble();
    return absl::OkStatus();
  }

  void Say(const std::string& kind, const std::string& line) {
    task_.seat.report(kind, line).IgnoreError();
  }

  absl::Status SayWhatIsNew() {
    for (const RingReport& report : inbox_.Take()) {
      RZ_RETURN_IF_ERROR(report.kind == LapTask::Kind::kTrain ? HearLoss(report)
                                                              : HearEvaluation(report));
    }
    return absl::OkStatus();
  }

  absl::Status HearLoss(const RingReport& result) {
    const double loss = result.loss();
    if (!report_.first_loss.has_value()) report_.first_loss = loss;
    report_.last_loss = loss;
    report_.iterations = result.done();
    const auto signals = static_cast<int64_t>(result.total(RingTotals::kSignals));
    ends_ = ends_ || signals >= kEndSignal;
    // The launching process passes one signal on to all workers, who hear it in different laps.
    const bool another = !signalled_.has_value() || result.when - *signalled_ > kOneSignal;
    if (signals % kEndSignal > 0 && another) {
      saves_ = true;
      signalled_ = result.when;
    }
    const OptimizerOptions& optimizer = config_.optimizer;
    report_.lr = RateAt(optimizer.curve, optimizer.learning_rate,
                        result.iteration.value - report_.skipped_updates)
                     .rate;
    report_.pss_mib = result.total(RingTotals::kPss);
    if (metrics_ != nullptr) Miss("metrics", metrics_->Write(result, report_.lr));
    const int lag = RingTotals::GradientLag(plan());
    if (result.done() - lag > plan().first_iteration) {
      RZ_RETURN_IF_ERROR(HearNorm(result.done() - lag, result.total(RingTotals::kGradientSquares)));
    }
    const double waits = Usage::Now(ring_->engine().stats()).waits();
    if (const auto line = progress_.Line(result, report_, waits)) Say("progress", *line);
    const WorkerId worker = RingTotals::PaceOf(plan(), result.iteration);
    for (const std::string& slow : stragglers_.Note(worker.value, result.when, result.pace())) {
      Say("note", absl::StrCat("warning: ", slow));
    }
    return Watch("loss", result.done(), loss,
                 std::isfinite(loss) ? "" : result.OriginOfLoss(plan()));
  }

  absl::Status HearEvaluation(const RingReport& report) {
    const bool tokens = task_.input.data->shape.kind == SampleShape::Kind::kTokens;
    const EvaluationResult result = EvaluationIn(report, tokens);
    report_.evaluations.push_back(result);
    if (metrics_ != nullptr) Miss("metrics", metrics_->WriteEvaluation(result));
    RZ_RETURN_IF_ERROR(Watch("held-out loss", result.iteration, result.loss, ""));
    Say("note", absl::StrCat("iteration ", result.iteration, ": ", result.Describe()));
    return absl::OkStatus();
  }

  // At the first value that is not finite: says so, or ends the run.
  absl::Status Watch(const std::string& what, int done, double value, const std::string& from) {
    const std::optional<std::string> line = nonfinite_.Note(what, done, value, from);
    if (!line.has_value()) return absl::OkStatus();
    if (config_.cyclic.on_nonfinite == CyclicConfig::OnNonfinite::kStop) {
      return absl::OutOfRangeError(absl::StrCat(*line, "; cyclic.on_nonfinite is stop"));
    }
    Say("note", absl::StrCat("warning: ", *line));
    return absl::OkStatus();
  }

  // `squares`: the sum of the gradients' squares. A dynamic loss scale is found by overflows: they
  // are no warning, but are counted as skipped updates.
  absl::Status HearNorm(int done, double squares) {
    if (!plan().exchange) return absl::OkStatus();
    const double norm = std::sqrt(squares);
    report_.gradient_norm = norm;
    if (plan().skips() && !std::isfinite(squares)) ++report_.skipped_updates;
    if (metrics_ != nullptr) {
      Miss("metrics", metrics_->WriteNorm(done, norm, report_.skipped_updates));
    }
    if (config_.precision.loss_scale.dynamic || std::isfinite(squares)) return absl::OkStatus();
    const std::optional<StageId> stage = ring_->engine().NonfiniteStage(Iteration(done - 1));
    std::vector<std::string> words;
    if (stage.has_value()) {
      words.push_back(
          absl::StrCat("from stage ", stage->value, " (", plan().stage(*stage).name, ")"));
    }
    if (plan().skips()) words.push_back("and its update is skipped");
    return Watch("gradient norm", done, norm, absl::StrJoin(words, ", "));
  }

  // At the end: also the last iterations' norms, which no later iteration's report could tell.
  absl::Status SayTheRest() {
    RZ_RETURN_IF_ERROR(SayWhatIsNew());
    const int end = ring_->engine().iterations();
    for (int t = std::max(plan().first_iteration, end - RingTotals::GradientLag(plan())); t < end;
         ++t) {
      RZ_RETURN_IF_ERROR(HearNorm(t + 1, ring_->engine().GradientSquares(Iteration(t))));
    }
    if (const auto line = nonfinite_.Summary()) Say("note", absl::StrCat("warning: ", *line));
    return absl::OkStatus();
  }

  // CPU time of the process beyond that of the counted operations went to messages.
  absl::StatusOr<CostProfile> CostsOf(const WorkerReport& report) const {
    const int iterations = report.steps.count;
    if (iterations == 0) return absl::InternalError("no iteration was measured");
    CostProfile costs{.micro_batch = static_cast<int>(config_.batch.micro_batch),
                      .threads = config_.cyclic.threads,
                      .workers = plan().workers,
                      .lap_nanoseconds = costs_->lap_nanoseconds()};
    const std::vector<StageTicks> means = costs_->Means();
    for (int j = 0; j < plan().stage_count(); ++j) {
      costs.layers.push_back({plan().stages[j].name, means[j]});
    }
    const auto used = static_cast<int64_t>(1e9 * report.steps.all.cpu);
    const int64_t other = std::max<int64_t>(0, used - costs_->total_nanoseconds()) / iterations;
    const Iteration last(plan().iterations - 1);
    RZ_ASSIGN_OR_RETURN(const Program program,
                        MakeProgram(plan(), self(), {last, Iteration(plan().iterations)}));
    const auto messages = std::ranges::count(program.ops, OpKind::kSend, &Op::kind);
    // Where torch has threads of its own, what those take cannot be told from messages.
    if (messages > 0 && costs.threads == 1) costs.message_nanoseconds = other / messages;
    return costs;
  }

  // The report of an interrupted run has what there is of the run.
  absl::StatusOr<WorkerReport> MakeReport(bool interrupted) {
    WorkerReport report = std::move(report_);
    const EngineStats stats = ring_->engine().stats();
    report.worker = self().value;
    report.interrupted = interrupted;
    {
      const MutexLock lock(not_written_mutex_);
      report.not_written = not_written_;
    }
    if (meter_.has_value()) report.steps = meter_->steps();
    if (!interrupted) {
      RZ_RETURN_IF_ERROR(SplitSentBytes(plan(), stats.transport.bytes_sent, report));
    }
    report.memory = stats.memory;
    report.skipped_updates = stats.skipped_updates;
    report.loss_scale = stats.loss_scale;
    if (costs_ != nullptr) {
      RZ_ASSIGN_OR_RETURN(report.costs, CostsOf(report));
    }
    report.mfu = facts_.mfu(report.steps.mean(report.steps.all.seconds));
    return report;
  }

  TrainTask task_;
  const Config& config_;
  Injection injection_;
  ReportInbox inbox_;    // outlives ring_, which reports to it
  WorkerReport report_;  // so far
  LapRunner laps_;
  const RunFacts facts_;
  ProgressMeter progress_;
  RingTotals totals_;
  NonfiniteWatch nonfinite_;
  StragglerWatch stragglers_;
  std::optional<LapMeter> meter_;
  bool ends_ = false, saves_ = false;                               // worker 0: is to be asked for
  std::optional<Version> end_;                                      // what was answered
  std::optional<std::chrono::steady_clock::time_point> signalled_;  // worker 0: to save
  std::atomic<bool> hears_end_ = false, hears_save_ = false;        // by a signal to this worker
  std::chrono::steady_clock::time_point asked_at_ = std::chrono::steady_clock::now();
  Mutex not_written_mutex_;
  NotWritten not_written_ ABSL_GUARDED_BY(not_written_mutex_);
  std::unique_ptr<RunMetrics> metrics_;
  std::unique_ptr<OpCosts> costs_;  // ring_ writes them
  std::unique_ptr<RingModel> ring_;
  std::unique_ptr<TraceStream> trace_;  // trace_ and seat_ look into the ring's engine
  FlightDesk::Seat seat_;               // looks into trace_, too
  std::unique_ptr<LiveTensorBytes> live_;
};

}  // namespace

Injection::Injection(const InjectConfig& inject, WorkerId self) : inject_(inject) {
  if (inject.worker != self.value) inject_.action = Action::kNone;
}

void Injection::ReachSave() {
  if (inject_.at == Point::kSave && ++saves_ == inject_.number) Reach(Point::kSave);
}

void Injection::Reach(Point point) const {
  const bool ends = inject_.action == Action::kKill || inject_.action == Action::kStop;
  if (ends && inject_.at == point) Act(inject_.action);
}

std::unique_ptr<Transport> Injection::Wrap(std::unique_ptr<Transport> transport) const {
  const bool at_message = inject_.action != Action::kNone && inject_.at == Point::kMessage;
  if (!at_message && inject_.delay.count() == 0) return transport;
  FaultOptions faults{.seed = inject_.seed};
  if (const auto delay = inject_.delay; delay.count() > 0) {
    faults.delay = [delay](WorkerId, MessageKey) { return delay; };
  }
  if (at_message && inject_.action == Action::kFlip) {
    faults.flip_message = inject_.number;
  } else if (at_message) {
    faults.act_at_message = inject_.number;
    faults.act = [action = inject_.action] { Act(action); };
  }
  return MakeFaulty(std::move(transport), faults);
}

absl::Status Injection::RunLap(const std::function<absl::Status()>& lap) {
  const bool mine = inject_.action != Action::kNone && inject_.at == Point::kLap;
  const bool reached = mine && ++laps_ >= inject_.number;
  if (!reached) return lap();
  if (laps_ == inject_.number) Reach(Point::kLap);
  if (inject_.action == Action::kHang) {
    SayInjected("hang");
    while (true) pause();
  }
  const int64_t before = ThreadNanoseconds();
  const absl::Status status = lap();
  if (inject_.action == Action::kSlow) {
    const int64_t computed = ThreadNanoseconds() - before;
    std::this_thread::sleep_for(std::chrono::nanoseconds((kSlowness - 1) * computed));
  }
  return status;
}

absl::StatusOr<WorkerReport> TrainWorker(TrainTask task) { return Worker(std::move(task)).Run(); }

}  // namespace ringzero
