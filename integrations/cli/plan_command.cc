// `ringzero plan`: plans as `train` would, and prints instead.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/train_worker.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/report.h"
#include "integrations/torch/machine_speed.h"
#include "integrations/torch/run_workers.h"
#include "p2p/launch/launcher.h"
#include "sharding/block_table.h"
#include "sharding/fit_certificate.h"
#include "sharding/free_window.h"
#include "sharding/program.h"
#include "sharding/render.h"
#include "zero/optimizer_state.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

// The first iterations take pages from the kernel for the first time.
constexpr int kLeftOut = 4;
constexpr int kMeasured = 6;

constexpr int64_t StageTicks::*kParts[] = {&StageTicks::forward, &StageTicks::backward,
                                           &StageTicks::add, &StageTicks::update};

// The configuration with fewer workers, and without what else may happen in a run.
Config ConfigOfProfile(Config config) {
  CyclicConfig& cyclic = config.cyclic;
  const int at_once = std::max(1, static_cast<int>(UsableCores() / cyclic.threads));
  config.zero_stage = 3;  // one worker computes each update
  config.tensorboard.reset();
  config.csv_monitor.reset();
  cyclic.workers = std::min(cyclic.workers, at_once);
  cyclic.stagger = cyclic.track_activations = false;
  cyclic.retain = cyclic.window = 0;
  cyclic.exchange = true;
  cyclic.inject = {};
  return config;
}

// The mean of what the workers have measured.
CostProfile Combine(const std::vector<CostProfile>& workers) {
  const auto count = static_cast<int64_t>(workers.size());
  CostProfile profile = workers[0];
  profile.lap_nanoseconds = profile.message_nanoseconds = 0;
  for (const CostProfile& worker : workers) {
    profile.lap_nanoseconds += worker.lap_nanoseconds / count;
    profile.message_nanoseconds += worker.message_nanoseconds / count;
  }
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    for (int64_t StageTicks::*const part : kParts) {
      int64_t sum = 0;
      for (const CostProfile& worker : workers) sum += worker.layers[i].nanoseconds.*part;
      const bool of_owner = part == &StageTicks::update;  // one worker's; other workers have 0
      profile.layers[i].nanoseconds.*part = of_owner ? sum : sum / count;
    }
  }
  return profile;
}

// What a configuration's layers take here, by training a few iterations: as many workers as the run
// has, but no more than there are cores. Workers that compute at the same time share caches and
// memory, so that one alone would look too fast. They are processes, as in the run itself, with a
// stage for each layer. To be called before this process uses torch. Says on stderr what it does.
absl::StatusOr<CostProfile> MeasureCosts(const RunInput& input) {
  RunInput few = input;
  few.config = ConfigOfProfile(input.config);
  few.hosts = 1;
  few.stage_per_layer = true;
  few.length.iterations = kLeftOut + kMeasured;
  few.length.evaluation = {};
  const CyclicConfig& cyclic = few.config.cyclic;
  std::fprintf(stderr, "ringzero: measuring %d iterations with %d workers at a time ...\n",
               few.length.iterations, cyclic.workers);
  const RunWorkersOptions options{
      .launch = {.workers = cyclic.workers, .peer_timeout = cyclic.peer_timeout},
      .threads = cyclic.threads,
      .metrics_count = kMetricsCount};
  const auto work = [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
    RZ_ASSIGN_OR_RETURN(const WorkerReport report,
                        TrainWorker({.input = few,
                                     .run = seat.run,
                                     .self = seat.self,
                                     .transport = std::move(seat.transport),
                                     .costs_from = Iteration(kLeftOut)}));
    return ToBytes(report);
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      RunWorkers(
                          options, [&] { return PlanRun(few); }, work));
  std::vector<CostProfile> costs;
  for (const std::string& result : results) {
    RZ_ASSIGN_OR_RETURN(WorkerReport report, FromBytes(result));
    if (!report.costs.has_value()) return absl::InternalError("a worker has measured nothing");
    costs.push_back(*std::move(report.costs));
  }
  return Combine(costs);
}

struct PlanTimes {
  SimulationOptions speed;  // nanoseconds
  std::string text;         // where the times come from, and what they lead to
};

// Simulate shares whole cores. Less than one core makes all computing take longer.
void UseCores(double cores, SimulationOptions& speed) {
  speed.cores = std::max(1, static_cast<int>(cores));
  if (cores >= 1) return;
  const auto stretch = [cores](int64_t& ticks) {
    ticks = std::llround(static_cast<double>(ticks) / cores);
  };
  for (int64_t* const ticks :
       {&speed.message_ticks, &speed.lap_ticks, &speed.add_ticks, &speed.update_ticks}) {
    stretch(*ticks);
  }
  for (StageTicks& stage : speed.stage_ticks) {
    for (int64_t StageTicks::*const part : kParts) stretch(stage.*part);
  }
}

// Between hosts: what more slots would give, and what memory they would take.
absl::StatusOr<std::string> DescribeLargerWindow(const RunInput& input, const ShortRun& run,
                                                 const Plan& plan) {
  const bool chosen = input.config.cyclic.window == 0;
  if (!chosen || PoolKindOf(input) != PoolKind::kReceived) return "";
  Plan larger = plan;
  larger.window = 0;
  RZ_ASSIGN_OR_RETURN(larger.window, ChooseFreeWindow(larger));
  if (larger.window <= plan.window) return "";
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(run, {}));
  RZ_ASSIGN_OR_RETURN(const StepForecast shorter, ForecastStep(larger, {}));
  int64_t most = 0;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(const TransportOptions now,
                        TransportNeeds(plan, WorkerId(w), kMetricsCount));
    RZ_ASSIGN_OR_RETURN(const TransportOptions then,
                        TransportNeeds(larger, WorkerId(w), kMetricsCount));
    const size_t more = then.parameter_bytes - now.parameter_bytes;
    most = std::max(most, static_cast<int64_t>(more));
  }
  return absl::StrFormat(
      "window      %d: with a core for each worker a step takes %.2f of its computing; with "
      "cyclic.window=%d it takes %.2f, and up to %s more memory for messages per worker\n",
      plan.window, 1 / step.computing, larger.window, 1 / shorter.computing,
      SizeText(static_cast<double>(most)));
}

// How long an iteration of the plan will take here, and why: from a measured profile, or from FLOPs
// and bytes. Cores are shared. Uses torch. InvalidArgument if the profile is of another run.
absl::StatusOr<PlanTimes> PredictTimes(const RunInput& input, const PlannedRun& run,
                                       const ShortRun& short_run,
                                       const std::optional<SavedProfile>& profile) {
  const Plan& plan = run.planned.plan;
  PlanTimes times;
  if (profile.has_value()) {
    RZ_RETURN_IF_ERROR(CheckProfile(*profile, input.config, run.model));
    RZ_ASSIGN_OR_RETURN(times.speed, TicksOf(profile->profile, plan));
    const int workers = profile->profile.workers;
    times.text = absl::StrCat("a profile of ", workers, " worker", workers == 1 ? "" : "s",
                              " at a time (", profile->path, ")");
  } else {
    const MachineSpeed machine = MeasureSpeed();
    times.speed =
        EstimateTicks(plan, MomentBytes(input.config.optimizer, run.planned.layouts), machine);
    times.text = absl::StrFormat(
        "FLOPs at %.1f GFLOP/s and bytes at %.1f GB/s, as large products and copies run here; "
        "small ones are slower, and messages are free: --profile FILE measures",
        1e-9 * machine.flops_per_second, 1e-9 * machine.bytes_per_second);
  }
  const int hosts = input.hosts;
  const double cores = UsableCores();
  UseCores(cores * hosts / input.config.cyclic.threads, times.speed);
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(short_run, times.speed));
  RZ_ASSIGN_OR_RETURN(const std::string window, DescribeLargerWindow(input, short_run, plan));
  times.text =
      absl::StrCat("\ntimes       from ", times.text, "; ", CoresText(cores),
                   hosts == 1 ? "" : absl::StrCat(" of each of ", hosts, " hosts like this one"),
                   "\n", DescribeStep(step), window);
  return times;
}

// What is printed: the first iterations show all that repeats.
constexpr int kShownIterations = 2;

// What would carry messages if the workers were on `hosts` hosts, an equal run of numbers on each.
absl::StatusOr<std::string> DescribeTransport(const Config& config, int hosts) {
  const int workers = config.cyclic.workers;
  if (hosts > workers) {
    return InvalidArgument("--hosts: wanted at most ", workers, " (one per worker), found ", hosts);
  }
  if (config.cyclic.transport == CyclicConfig::Transport::kLocal) {
    if (hosts == 1) return "local between all workers (threads of one process)";
    return InvalidArgument("cyclic.transport: local is for threads of one process, not for ", hosts,
                           " hosts");
  }
  std::vector<std::string> places;
  for (int w = 0; w < workers; ++w) places.push_back(absl::StrCat("host", w * hosts / workers));
  RZ_ASSIGN_OR_RETURN(const ChosenTransport chosen,
                      ChooseTransport(ChoiceOf(config.cyclic.transport), places));
  return chosen.why;
}

// The profile to predict with, measured now if its file is not there; none without --profile.
absl::StatusOr<std::optional<SavedProfile>> FindProfile(const std::string& path,
                                                        const RunInput& input) {
  if (path.empty()) return std::nullopt;
  absl::StatusOr<SavedProfile> saved = ReadProfile(path);
  if (!absl::IsNotFound(saved.status())) return saved;
  SavedProfile measured{.path = path};
  RZ_ASSIGN_OR_RETURN(measured.profile, MeasureCosts(input));
  RZ_RETURN_IF_ERROR(WriteProfile(measured));
  return measured;
}

// Marks the file as frozen, so that its times make the plan. Returns what `plan` returns, which
// is the first to plan with the file. A file whose times can make no plan stays as it was.
absl::StatusOr<std::string> Freeze(SavedProfile saved,
                                   const std::function<absl::StatusOr<std::string>()>& plan) {
  const bool was_frozen = std::exchange(saved.frozen, true);
  RZ_RETURN_IF_ERROR(WriteProfile(saved));
  absl::StatusOr<std::string> planned = plan();
  saved.frozen = was_frozen;
  if (!planned.ok()) RZ_RETURN_IF_ERROR(WriteProfile(saved));
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

// The certificate's table and, if the run does not fit, a warning. Plans and certifies in a child
// process: the calling process has not planned, and its own memory is not to be touched. Leaves the
// proof of the plan in `input`.
absl::StatusOr<std::string> DescribeFitInChild(RunInput& input) {
  const auto body = [&](WorkerContext&) -> absl::StatusOr<std::string> {
    PrepareTorch(input.config.cyclic.threads);
    RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(input));
    RZ_ASSIGN_OR_RETURN(const RunFit fit, CertifyRun(input, run, Parent::kLauncher));
    const absl::Status fits = CheckFit(fit.certificate, fit.budgets);
    const std::string text =
        absl::StrCat(DescribeFit(fit.certificate, fit.budgets, fit.unit),
                     fits.ok() ? "" : absl::StrCat("warning: ", fits.message(), "\n"));
    return OrderedJson({{"fit", text}, {"proof", run.planned.proof.Write()}}).dump();
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      LaunchProcesses({.alone = kPlanningProcess}, body));
  const OrderedJson found = OrderedJson::parse(results[0]);
  RZ_ASSIGN_OR_RETURN(input.proof, PlanProof::Parse(found["proof"]));
  return found["fit"].get<std::string>();
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
  RZ_ASSIGN_OR_RETURN(Config loaded, LoadConfig(SourceOf(line, std::nullopt)));
  for (const auto& [option, worker] :
       {std::pair("--program", line.program), std::pair("--blocks", line.blocks)}) {
    if (worker < loaded.cyclic.workers) continue;
    return InvalidArgument(option, ": wanted a worker below ", loaded.cyclic.workers, ", found ",
                           worker);
  }
  RZ_RETURN_IF_ERROR(CheckPlanFiles(line, loaded));
  RZ_ASSIGN_OR_RETURN(const std::string transport, DescribeTransport(loaded, line.hosts));
  RZ_ASSIGN_OR_RETURN(RunInput input, OpenRun(std::move(loaded), line.hosts));
  const Config& config = input.config;
  // The profile and the fit come first: both need a process that has not computed.
  RZ_ASSIGN_OR_RETURN(const std::optional<SavedProfile> profile, FindProfile(line.profile, input));
  if (line.freeze) input.config.cyclic.profile = line.profile;
  const auto certify = [&] { return DescribeFitInChild(input); };
  RZ_ASSIGN_OR_RETURN(const std::string fit, line.freeze ? Freeze(*profile, certify) : certify());
  PrepareTorch(config.cyclic.threads);
  RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(input));
  const Plan& plan = run.planned.plan;
  RZ_ASSIGN_OR_RETURN(const ShortRun short_run, ShortRun::Make(plan));
  RZ_ASSIGN_OR_RETURN(std::string text, DescribePlan(plan, run.planned.proof, short_run));
  RZ_ASSIGN_OR_RETURN(const MemoryForecast memory, ForecastRun(config, run));
  absl::StrAppend(&text, "transport: ", transport, "\n");
  RZ_ASSIGN_OR_RETURN(const PlanTimes times, PredictTimes(input, run, short_run, profile));
  absl::StrAppend(&text, times.text, DescribeMemory(memory, run.model.parameter_count), fit);
  const std::string slow = DescribeSlowType(config);
  if (!slow.empty()) absl::StrAppend(&text, slow, "\n");
  for (const std::string& warning : run.planned.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  for (const std::string& note : input.length.notes) absl::StrAppend(&text, note, "\n");
  const int shown = std::min(kShownIterations, plan.iterations);
  if (line.grid) absl::StrAppend(&text, "\n", RenderText(plan, shown));
  if (line.program >= 0) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, WorkerId(line.program),
                                                           {Iteration(0), Iteration(shown)}));
    absl::StrAppend(&text, "\n", ToString(program));
  }
  if (line.blocks >= 0) {
    const WorkerId worker(line.blocks);
    const std::vector<int64_t> moments = MomentBytes(config.optimizer, run.planned.layouts);
    RZ_ASSIGN_OR_RETURN(
        const std::vector<OwnBlock> table,
        BlockTable(plan, worker, {.moment_bytes = moments, .metrics_count = kMetricsCount}));
    absl::StrAppend(&text, "\n", DescribeBlocks(worker, table));
  }
  RZ_RETURN_IF_ERROR(WritePlanFiles(line, plan, times.speed));
  return PrintText(line, text);
}

}  // namespace ringzero
