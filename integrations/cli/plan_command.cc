// `ringzero plan`: plans as `train` would, and prints instead.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/commands.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/train_worker.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/plan_figure.h"
#include "integrations/torch/machine_speed.h"
#include "integrations/torch/run_workers.h"
#include "p2p/launch/launcher.h"
#include "sharding/fit_certificate.h"
#include "sharding/free_window.h"
#include "sharding/program.h"
#include "sharding/render.h"
#include "zero/optimizer_state.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

// The first iterations take pages from the kernel for the first time.
constexpr int kLeftOut = 4;
constexpr int kMeasured = 6;

// The configuration with fewer workers and nothing else that happens.
Config ConfigOfProfile(const Config& config) {
  Config shorter = config;
  const int at_once = std::max(1, static_cast<int>(UsableCores() / config.cyclic.threads));
  shorter.cyclic.workers = std::min(config.cyclic.workers, at_once);
  shorter.zero_stage = 3;  // each update is one worker's
  shorter.cyclic.stagger = false;
  shorter.cyclic.retain = 0;
  shorter.cyclic.window = 0;
  shorter.cyclic.exchange = true;
  shorter.cyclic.inject = {};
  shorter.cyclic.track_activations = false;
  shorter.tensorboard.reset();
  shorter.csv_monitor.reset();
  return shorter;
}

CostProfile Combine(const Config& config, const std::vector<MeasuredCosts>& workers) {
  const auto count = static_cast<int64_t>(workers.size());
  CostProfile profile{.micro_batch = static_cast<int>(config.batch.micro_batch),
                      .threads = config.cyclic.threads,
                      .workers = static_cast<int>(workers.size()),
                      .layers = workers[0].stages};
  int64_t other = 0, messages = 0;
  for (const MeasuredCosts& worker : workers) {
    profile.lap_nanoseconds += worker.lap_nanoseconds / count;
    other += worker.other_nanoseconds;
    messages += worker.messages;
  }
  // Where torch has threads of its own, what those take cannot be told from messages.
  const bool told = messages > 0 && config.cyclic.threads == 1;
  profile.message_nanoseconds = told ? other / messages : 0;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    StageTicks sum;
    for (const MeasuredCosts& worker : workers) {
      const StageTicks& times = worker.stages[i].nanoseconds;
      sum.forward += times.forward;
      sum.backward += times.backward;
      sum.add += times.add;
      sum.update += times.update;  // one worker's, its owner's
    }
    for (int64_t* const ticks : {&sum.forward, &sum.backward, &sum.add}) *ticks /= count;
    profile.layers[i].nanoseconds = sum;
  }
  return profile;
}

// What a configuration's layers take here, by training a few iterations: as many workers as the run
// has, but no more than there are cores. Workers that compute at the same time share caches and
// memory, so that one alone would look too fast. They are processes, as in the run itself, with a
// stage for each layer. To be called before this process uses torch. Says on stderr what it does.
absl::StatusOr<CostProfile> MeasureCosts(const Config& config, const Dataset& data,
                                         const RunLength& length) {
  const Config shorter = ConfigOfProfile(config);
  RunLength few = length;
  few.iterations = kLeftOut + kMeasured;
  few.evaluation = {};
  std::fprintf(stderr, "ringzero: measuring %d iterations with %d workers at a time ...\n",
               few.iterations, shorter.cyclic.workers);
  const RunWorkersOptions options{
      .launch = {.workers = shorter.cyclic.workers, .peer_timeout = shorter.cyclic.peer_timeout},
      .threads = shorter.cyclic.threads,
      .metrics_count = kMetricsCount};
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      RunWorkers(
                          options, [&] { return PlanLayers(shorter, few, data.shape()); },
                          [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
                            TrainTask task{.config = shorter,
                                           .data = data,
                                           .length = few,
                                           .run = seat.run,
                                           .self = seat.self,
                                           .transport = std::move(seat.transport)};
                            task.costs_from = Iteration(kLeftOut);
                            RZ_ASSIGN_OR_RETURN(const WorkerReport report,
                                                TrainWorker(std::move(task)));
                            return ToBytes(report);
                          }));
  std::vector<MeasuredCosts> costs;
  for (const std::string& result : results) {
    RZ_ASSIGN_OR_RETURN(WorkerReport report, FromBytes(result));
    if (!report.costs.has_value()) return absl::InternalError("a worker has measured nothing");
    costs.push_back(*std::move(report.costs));
  }
  return Combine(shorter, costs);
}

struct PlanTimesRequest {
  const Config& config;
  const PlannedRun& run;
  const std::optional<SavedProfile>& profile;
  std::string profile_path;
  int hosts = 1;
};

struct PlanTimes {
  SimulationOptions speed;  // nanoseconds
  std::string text;         // where the times come from; of PredictTimes: and what they lead to
};

absl::StatusOr<PlanTimes> FromProfile(const PlanTimesRequest& request) {
  const absl::Status fits = CheckProfile(*request.profile, request.config, request.run.model);
  if (!fits.ok()) return Annotate(fits, request.profile_path);
  const CostProfile& profile = request.profile->profile;
  PlanTimes source;
  RZ_ASSIGN_OR_RETURN(source.speed, TicksOf(profile, request.run.planned.plan));
  source.text =
      absl::StrCat("a profile of ", profile.workers, " worker",
                   profile.workers == 1 ? "" : "s at a time (", request.profile_path, ")");
  return source;
}

PlanTimes FromCounts(const PlanTimesRequest& request) {
  const MachineSpeed machine = MeasureSpeed();
  return {.speed = EstimateTicks(request.run.planned.plan,
                                 MomentBytes(request.config.optimizer, request.run.planned.layouts),
                                 machine),
          .text = absl::StrFormat(
              "FLOPs at %.1f GFLOP/s and bytes at %.1f GB/s, as large products and copies run "
              "here; small ones are slower, and messages are free: --profile FILE measures",
              1e-9 * machine.flops_per_second, 1e-9 * machine.bytes_per_second)};
}

// Simulate shares whole cores. Less than one makes all that computes take longer.
void UseCores(double cores, SimulationOptions& speed) {
  speed.cores = std::max(1, static_cast<int>(cores));
  if (cores >= 1) return;
  std::vector<int64_t*> all = {&speed.message_ticks, &speed.lap_ticks, &speed.add_ticks,
                               &speed.update_ticks};
  for (StageTicks& stage : speed.stage_ticks) {
    all.insert(all.end(), {&stage.forward, &stage.backward, &stage.add, &stage.update});
  }
  for (int64_t* const ticks : all) *ticks = std::llround(static_cast<double>(*ticks) / cores);
}

// Where slots hold bytes: what the window of slots that hold none would give here, and cost.
absl::StatusOr<std::string> DescribeLargerWindow(const PlanTimesRequest& request) {
  const bool chosen = request.config.cyclic.window == 0;
  if (!chosen || PoolKindOf(request.config, request.hosts) != PoolKind::kReceived) return "";
  const Plan& plan = request.run.planned.plan;
  Plan larger = plan;
  larger.window = 0;
  RZ_ASSIGN_OR_RETURN(larger.window, ChooseFreeWindow(larger));
  if (larger.window <= plan.window) return "";
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(plan, {}));
  RZ_ASSIGN_OR_RETURN(const StepForecast shorter, ForecastStep(larger, {}));
  int64_t most = 0;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(const ReceivedBytes now, ReceivedUse(plan, WorkerId(w), kMetricsCount));
    RZ_ASSIGN_OR_RETURN(const ReceivedBytes then, ReceivedUse(larger, WorkerId(w), kMetricsCount));
    const size_t more = then.parameters + then.sums - now.parameters - now.sums;
    most = std::max(most, static_cast<int64_t>(more));
  }
  return absl::StrFormat(
      "window      %d: with a core for each worker a step takes %.2f of its computing; with "
      "cyclic.window=%d it takes %.2f, and up to %s more received memory per worker\n",
      plan.window, 1 / step.computing, larger.window, 1 / shorter.computing,
      SizeText(static_cast<double>(most)));
}

// How long an iteration of the plan will take here, and why: from a measured profile, or from FLOPs
// and bytes. Cores are shared. Uses torch. InvalidArgument if the profile is of another run.
absl::StatusOr<PlanTimes> PredictTimes(const PlanTimesRequest& request) {
  PlanTimes source;
  if (request.profile.has_value()) {
    RZ_ASSIGN_OR_RETURN(source, FromProfile(request));
  } else {
    source = FromCounts(request);
  }
  const double cores = UsableCores();
  UseCores(cores * request.hosts / request.config.cyclic.threads, source.speed);
  RZ_ASSIGN_OR_RETURN(const StepForecast step,
                      ForecastStep(request.run.planned.plan, source.speed));
  RZ_ASSIGN_OR_RETURN(const std::string window, DescribeLargerWindow(request));
  const std::string hosts =
      request.hosts == 1 ? "" : absl::StrCat(" of each of ", request.hosts, " hosts like this one");
  return PlanTimes{.speed = source.speed,
                   .text = absl::StrCat("\ntimes       from ", source.text, "; ", CoresText(cores),
                                        hosts, "\n", DescribeStep(step), window)};
}

// What is printed: the first iterations show all that repeats.
constexpr int kShownIterations = 2;

// What would carry messages, if the workers were on so many hosts, in equal runs of their numbers.
absl::StatusOr<std::string> DescribeTransport(const Config& config, int hosts) {
  const int workers = config.cyclic.workers;
  if (hosts > workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts: wanted at most ", workers, " (one per worker), found ", hosts));
  }
  if (config.cyclic.transport == CyclicConfig::Transport::kLocal) {
    if (hosts == 1) return "local between all workers (threads of one process)";
    return absl::InvalidArgumentError(absl::StrCat(
        "cyclic.transport: local is for threads of one process, not for ", hosts, " hosts"));
  }
  std::vector<std::string> places;
  for (int w = 0; w < workers; ++w) places.push_back(absl::StrCat("host", w * hosts / workers));
  RZ_ASSIGN_OR_RETURN(const ChosenTransport chosen,
                      ChooseTransport(ChoiceOf(config.cyclic.transport), places));
  return chosen.why;
}

// The profile to predict with, measured now if its file is not there; none without --profile.
absl::StatusOr<std::optional<SavedProfile>> FindProfile(const CommandLine& line,
                                                        const Config& config, const Dataset& data,
                                                        const RunLength& length) {
  if (line.profile.empty()) return std::nullopt;
  absl::StatusOr<SavedProfile> saved = ReadProfile(line.profile);
  const bool known = saved.ok();
  if (absl::IsNotFound(saved.status())) {
    saved = SavedProfile();
    RZ_ASSIGN_OR_RETURN(saved->profile, MeasureCosts(config, data, length));
  }
  RZ_RETURN_IF_ERROR(saved.status());
  if (!known) RZ_RETURN_IF_ERROR(WriteProfile(line.profile, *saved));
  return *saved;
}

// Marks the file as frozen, so that its times make the plan; and what `plan`, the first to plan
// with it, returns. A file whose times can make none stays as it was.
absl::StatusOr<std::string> Freeze(const std::string& path, SavedProfile saved,
                                   const std::function<absl::StatusOr<std::string>()>& plan) {
  const bool was_frozen = std::exchange(saved.frozen, true);
  RZ_RETURN_IF_ERROR(WriteProfile(path, saved));
  absl::StatusOr<std::string> planned = plan();
  if (planned.ok() || was_frozen) return planned;
  saved.frozen = false;
  RZ_RETURN_IF_ERROR(WriteProfile(path, saved));
  return planned;
}

absl::Status WritePlanFiles(const CommandLine& line, const Plan& plan,
                            const SimulationOptions& speed) {
  if (!line.svg.empty()) {
    RZ_ASSIGN_OR_RETURN(const std::string svg, PlanFigure(plan, speed));
    RZ_RETURN_IF_ERROR(WriteWholeFile(line.svg, svg));
  }
  if (!line.text.empty()) RZ_RETURN_IF_ERROR(WriteWholeFile(line.text, PlanToString(plan)));
  if (!line.trace.empty()) {
    RZ_ASSIGN_OR_RETURN(const std::string trace, PredictedTrace(plan, speed));
    RZ_RETURN_IF_ERROR(WriteTrace(line.trace, trace));
  }
  return absl::OkStatus();
}

// The certificate's table and, where the run does not fit, a warning. Plans and certifies in a child
// process: this one has not planned, and its own memory is not to be touched.
absl::StatusOr<std::string> DescribeFitInChild(const Config& config, const RunLength& length,
                                               const Dataset& data, int hosts) {
  const auto body = [&](WorkerContext&) -> absl::StatusOr<std::string> {
    PrepareTorch(config.cyclic.threads);
    RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(config, length, data.shape(), hosts));
    RZ_ASSIGN_OR_RETURN(
        const RunFit fit,
        CertifyRun({.config = config, .length = length, .data = data, .run = run, .hosts = hosts}));
    const absl::Status fits = CheckFit(fit.certificate, fit.budgets);
    return absl::StrCat(DescribeFit(fit.certificate, fit.budgets, fit.unit),
                        fits.ok() ? "" : absl::StrCat("warning: ", fits.message(), "\n"));
  };
  const auto results = LaunchProcesses({.workers = 1}, body);
  if (!results.ok()) return WithoutProcess(results.status(), "the planning process");
  return (*results)[0];
}

// The profile is an input if it is there, and an output if it is not or is to be frozen.
absl::Status CheckPlanFiles(const CommandLine& line, const Config& config) {
  std::vector<NamedPath> outputs = {
      {"--svg", line.svg}, {"--text", line.text}, {"--trace", line.trace}};
  std::vector<NamedPath> inputs = {{"CONFIG", line.config}, {"data.path", config.data.path}};
  std::error_code missing;
  const bool kept = std::filesystem::exists(line.profile, missing) && !line.freeze;
  (kept ? inputs : outputs).push_back({"--profile", line.profile});
  if (config.cyclic.profile != line.profile) {
    inputs.push_back({"cyclic.profile", config.cyclic.profile});
  }
  return CheckOutputFiles(outputs, inputs);
}

}  // namespace

absl::Status RunPlan(const CommandLine& line) {
  if (line.freeze && line.profile.empty()) {
    return absl::InvalidArgumentError("--freeze: wanted --profile FILE beside it");
  }
  RZ_ASSIGN_OR_RETURN(Config config, LoadConfig(SourceOf(line, std::nullopt)));
  if (line.program >= config.cyclic.workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--program: wanted a worker below ", config.cyclic.workers, ", found ", line.program));
  }
  RZ_RETURN_IF_ERROR(CheckPlanFiles(line, config));
  RZ_ASSIGN_OR_RETURN(const std::string transport, DescribeTransport(config, line.hosts));
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, OpenData(config));
  RZ_ASSIGN_OR_RETURN(const RunLength length, MeasureRun(config, *data));
  // These two first: they need a process that has not computed.
  RZ_ASSIGN_OR_RETURN(const std::optional<SavedProfile> profile,
                      FindProfile(line, config, *data, length));
  if (line.freeze) config.cyclic.profile = line.profile;
  const auto certify = [&] { return DescribeFitInChild(config, length, *data, line.hosts); };
  RZ_ASSIGN_OR_RETURN(const std::string fit,
                      line.freeze ? Freeze(line.profile, *profile, certify) : certify());
  PrepareTorch(config.cyclic.threads);
  RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(config, length, data->shape(), line.hosts));
  const Plan& plan = run.planned.plan;
  RZ_ASSIGN_OR_RETURN(std::string text, DescribePlan(plan));
  RZ_ASSIGN_OR_RETURN(const MemoryForecast memory, ForecastRun(config, run));
  absl::StrAppend(&text, "transport: ", transport, "\n");
  RZ_ASSIGN_OR_RETURN(const PlanTimes times, PredictTimes({.config = config,
                                                           .run = run,
                                                           .profile = profile,
                                                           .profile_path = line.profile,
                                                           .hosts = line.hosts}));
  absl::StrAppend(&text, times.text, DescribeMemory(memory, run.model.parameter_count), fit);
  const std::string slow = DescribeSlowType(config);
  if (!slow.empty()) absl::StrAppend(&text, slow, "\n");
  for (const std::string& warning : run.planned.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  for (const std::string& note : config.notes) absl::StrAppend(&text, note, "\n");
  for (const std::string& note : length.notes) absl::StrAppend(&text, note, "\n");
  const int shown = std::min(kShownIterations, plan.iterations);
  if (line.grid) absl::StrAppend(&text, "\n", RenderText(plan, shown));
  if (line.program >= 0) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, WorkerId(line.program),
                                                           {Iteration(0), Iteration(shown)}));
    absl::StrAppend(&text, "\n", ToString(program));
  }
  RZ_RETURN_IF_ERROR(WritePlanFiles(line, plan, times.speed));
  return PrintText(line, text);
}

}  // namespace ringzero
