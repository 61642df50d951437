// From a configuration to its data, the length of the run, its plan and the plan's memory; and
// `ringzero plan`, which plans as `train` would, and prints instead.
#include "integrations/cli/plan_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/checkpoint/tensor_file_writer.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/train_worker.h"
#include "integrations/cli/worker_report.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/report.h"
#include "integrations/torch/measurements.h"
#include "p2p/job/launcher.h"
#include "p2p/job/limits.h"
#include "sharding/program/program.h"
#include "sharding/study/cost_profile.h"
#include "sharding/study/disk_verdict.h"
#include "sharding/study/render.h"
#include "sharding/study/simulate.h"
#include "zero/optimizer/optimizer.h"
#include "zero/transport_needs.h"
#include "zero/version_files.h"

namespace ringzero {

using Json = nlohmann::json;

namespace {

constexpr char kProfileFormat[] = "ringzero cost profile 2";
constexpr int64_t kSaverBytes = 128 << 10;  // at most, of a saver's thread on the heap

absl::Status CheckModelFitsData(const Config& config, const SampleShape& shape) {
  const ModelConfig& model = config.model;
  if (model.type == ModelConfig::Type::kGpt && shape.classes > model.gpt.vocab) {
    return config.Error("model.vocab", "the data has tokens up to ", shape.classes - 1,
                        ", so at least ", shape.classes, " are needed, found ", model.gpt.vocab);
  }
  if (model.type != ModelConfig::Type::kResNet) return absl::OkStatus();
  const std::string found = absl::StrJoin(shape.input, " x ");
  if (shape.input.size() != 3 || shape.input[1] != shape.input[2]) {
    return config.Error("model.type", "resnet wants square images, the data has ", found);
  }
  if (shape.input[0] != 1 && shape.input[0] != 3) {
    return config.Error("data.input", "wanted images of 1 or 3 channels, found ", found);
  }
  if (model.channels != 0 && model.channels != shape.input[0]) {
    return config.Error("model.channels", "the data's images have ", shape.input[0], ", found ",
                        model.channels);
  }
  return absl::OkStatus();
}

// A cost profile in a file: JSON, measured once and read by later plans.
struct SavedProfile {
  CostProfile profile;
  bool frozen = false;  // its costs may make a plan (cyclic.profile)
  std::string path;
};

// Writes the file whole or not at all.
absl::Status WriteProfile(const SavedProfile& saved) {
  Json json = saved.profile;
  json["format"] = kProfileFormat;
  json["frozen"] = saved.frozen;
  return WriteWholeFile(saved.path, json.dump(2) + "\n");
}

// NotFound; InvalidArgument that says what is wrong with which entry. Both name the path. Every
// member must be there and be of its kind. Numbers are whole, from 0 to a day's nanoseconds.
absl::StatusOr<SavedProfile> ReadProfile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kProfileFormat) {
    return InvalidArgument(path, ": wanted JSON with \"format\": \"", kProfileFormat, "\"");
  }
  SavedProfile saved{.path = path};
  const Json layers = json.value("layers", Json());
  if (!layers.is_array()) return InvalidArgument(path, ": \"layers\": wanted a list");
  saved.profile.layers.resize(layers.size());
  Json sample = saved.profile;
  sample["frozen"] = false;
  RZ_RETURN_IF_ERROR(Annotate(CheckMembers(sample, json), path));
  json.get_to(saved.profile);
  json["frozen"].get_to(saved.frozen);
  return saved;
}

// InvalidArgument, naming the file, if the profile is of other layers, another micro-batch or
// other threads.
absl::Status CheckProfile(const SavedProfile& saved, const Config& config,
                          const ModelDescription& model) {
  const CostProfile& profile = saved.profile;
  const auto differs = [&](const std::string& what, const auto& wanted, const auto& found) {
    return InvalidArgument(saved.path, ": it was measured for another run: wanted ", what, " ",
                           wanted, ", found ", found);
  };
  if (profile.layers.size() != model.layers.size()) {
    return differs("layers", model.layers.size(), profile.layers.size());
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (profile.layers[i].name != model.layers[i].name) {
      return differs(absl::StrCat("layer ", i), model.layers[i].name, profile.layers[i].name);
    }
  }
  if (profile.micro_batch != config.batch.micro_batch) {
    return differs("micro-batches of", config.batch.micro_batch, profile.micro_batch);
  }
  if (profile.threads != config.cyclic.threads) {
    return differs("threads", config.cyclic.threads, profile.threads);
  }
  return absl::OkStatus();
}

// What the plan's own checks refuse was asked for by the configuration: bad input, with the key if
// one can be named.
absl::Status PlanError(const Config& config, const absl::Status& status) {
  const bool refused = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kFailedPrecondition;
  // Worker 0's proof has not come: no fault of the configuration.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return status;
  if (!refused) return Annotate(status, config.keys.file());
  if (config.cyclic.window != 0 && absl::StrContains(status.message(), "window")) {
    return config.Error("cyclic.window", status.message());
  }
  return InvalidArgument(config.keys.file(), ": ", status.message());
}

// FLOPs of one sample. A stage with nothing to train before it has no backward.
double FlopsOf(const std::vector<LayerDescription>& layers, const Plan& plan) {
  double flops = 0;
  for (const StagePlan& stage : plan.stages) {
    for (int i = stage.first_layer; i < stage.end_layer; ++i) {
      const LayerCost& cost = layers[i].cost;
      flops += static_cast<double>(cost.forward + (stage.has_backward ? cost.backward : 0));
    }
  }
  return flops;
}

// The profile that makes the plan; none without cyclic.profile.
absl::StatusOr<std::optional<SavedProfile>> FrozenProfile(const Config& config) {
  if (config.cyclic.profile.empty()) return std::nullopt;
  absl::StatusOr<SavedProfile> saved = ReadProfile(config.cyclic.profile);
  if (!saved.ok()) return config.Error("cyclic.profile", saved.status().message());
  if (saved->frozen) return saved;
  return config.Error("cyclic.profile", saved->path,
                      ": it is not frozen: a plan made from it would not be the same for all; "
                      "ringzero plan CONFIG --profile FILE --freeze");
}

// A frozen profile's costs instead of counted ones, also where a rule is chosen.
absl::Status TakeFrozenCosts(const Config& config, SavedProfile saved,
                             std::optional<RuleQuestion>& question, ModelDescription& model) {
  const absl::Status fits = CheckProfile(saved, config, model);
  if (!fits.ok()) return config.Error("cyclic.profile", fits.message());
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StageTicks& times = saved.profile.layers[i].nanoseconds;
    model.layers[i].cost = {.forward = std::max<int64_t>(times.forward, 1),
                            .backward = std::max<int64_t>(times.backward, 1)};
  }
  if (question.has_value()) question->profile = std::move(saved.profile);
  return absl::OkStatus();
}

absl::StatusOr<PassBytes> MeasureRunPass(const RunInput& input, const PlannedRun& run) {
  LapRunner laps(*input.data, BatchesOf(input.config, input.length));
  const std::vector<double> metrics(kMetricsCount);
  PassMemoryOptions options{.metrics_count = kMetricsCount};
  options.train = [&](RingModel& ring, const LapTask& lap) {
    laps.Train(ring, lap);
    return ring.EndMicroBatch(metrics);
  };
  if (input.length.evaluation.every > 0) {
    options.evaluate = [&](RingModel& ring, const LapTask&) {
      laps.Evaluate(ring, 0);
      return absl::OkStatus();
    };
  }
  return MeasurePass(run, options);
}

// How payload gets to another worker.
PoolKind PoolKindOf(const RunInput& input) {
  switch (input.config.cyclic.transport) {
    case TransportChoice::kLocal: return PoolKind::kHandles;
    case TransportChoice::kShm: return PoolKind::kShared;
    case TransportChoice::kUcx:
    case TransportChoice::kNccl: return PoolKind::kReceived;
    case TransportChoice::kAuto: break;
  }
  return CountByHost(input.hosts, input.config.cyclic.workers).size() == 1 ? PoolKind::kShared
                                                                           : PoolKind::kReceived;
}

absl::StatusOr<std::vector<WorkerExtras>> ExtrasOf(const RunInput& input,
                                                   const PlannedModel& planned) {
  const Plan& plan = planned.plan;
  const std::vector<int64_t> moments =
      MomentBytes(input.config.optimizer, planned.layouts, plan.stages);
  std::vector<WorkerExtras> extras(static_cast<size_t>(plan.workers));
  const int64_t huge_page = HugePageBytes();
  const int64_t staging = TensorFileWriter::kStagingBytes + std::max(kSaverBytes, huge_page);
  for (int w = 0; w < plan.workers; ++w) {
    WorkerExtras& mine = extras[static_cast<size_t>(w)];
    RZ_ASSIGN_OR_RETURN(mine.pools, PoolBytes({.plan = plan,
                                               .self = WorkerId(w),
                                               .metrics_count = kMetricsCount,
                                               .kind = PoolKindOf(input)}));
    if (plan.checkpoint.any()) mine.staging = staging;
    mine.tier = LayOutTier(plan, WorkerId(w), planned.layouts, input.config.optimizer).bytes;
    mine.versions = LayOutVersions(plan, WorkerId(w)).bytes;
    // In its modules.
    for (const StagePlan& stage : plan.stages) mine.statistics += stage.buffer_bytes;
    // What is private is on the heap, where its last page is whole.
    for (const OwnBlock& own : StateBlocks(plan, WorkerId(w), moments)) {
      const int64_t page = own.bytes >= huge_page ? huge_page : 4096;
      if (own.access == Access::kPrivate) mine.rounding += (page - own.bytes % page) % page;
    }
  }
  return extras;
}

// The budgets of this host: as the configuration says, or as the host's memory is found.
FitBudgets FindBudgets(const Config& config) {
  FitBudgets budgets;
  const auto& given = config.cyclic.memory_budget;
  for (const auto& [place, bytes] :
       {std::pair(MemoryPlace::kHost, given.host), std::pair(MemoryPlace::kDevice, given.device),
        std::pair(MemoryPlace::kDisk, given.disk)}) {
    if (!bytes.has_value()) continue;
    budgets[static_cast<size_t>(place)] = {
        .bytes = bytes, .source = absl::StrCat("cyclic.memory_budget.", ToString(place))};
  }
  if (!given.host.has_value()) {
    budgets[static_cast<size_t>(MemoryPlace::kHost)] = FindHostMemory("/");
  }
  return budgets;
}

// The certificate of this plan, with what has been measured so far.
absl::Status CertifyPlan(const RunInput& input, const PlannedRun& run, RunFit& fit) {
  RZ_ASSIGN_OR_RETURN(fit.input.states, ForecastRun(input.config, run));
  RZ_ASSIGN_OR_RETURN(fit.input.extras, ExtrasOf(input, run.planned));
  fit.certificate = Certify(fit.input);
  return absl::OkStatus();
}

// The certificate of this plan, without another one.
absl::StatusOr<RunFit> CertifyRun(const RunInput& run_input, const PlannedRun& run, Parent parent) {
  const Config& config = run_input.config;
  // Found before this process takes memory itself.
  RunFit fit{.budgets = FindBudgets(config)};
  FitInput& input = fit.input;
  const int workers = config.cyclic.workers;
  std::map<std::string, int> numbers;
  for (const std::string& host : run_input.hosts) {
    const auto [number, first] = numbers.try_emplace(host, static_cast<int>(numbers.size()));
    input.hosts.push_back(number->second);
  }
  input.hosts.resize(static_cast<size_t>(workers));
  input.one_process = config.cyclic.transport == TransportChoice::kLocal;
  fit.unit = PoolKindOf(run_input) == PoolKind::kReceived ? FitUnit::kWorker : FitUnit::kHost;
  // If not even memory without a pass fits, there may be no room to measure a pass.
  RZ_RETURN_IF_ERROR(CertifyPlan(run_input, run, fit));
  if (!CheckFit(fit.certificate, fit.budgets).ok()) return fit;
  ReturnFreedMemory();  // what the proof took is free again, and not to be counted
  RZ_ASSIGN_OR_RETURN(input.pass, MeasureRunPass(run_input, run));
  // What the micro-batch took is still there, and is not the process' own.
  const PassBytes& pass = input.pass;
  const int64_t passed = std::max({pass.setup, pass.with_waiting_gradients, pass.evaluation});
  const ProcessPages mine = PagesOfProcess("self");
  ProcessPages above;
  if (parent == Parent::kLauncher) above = PagesOfProcess(absl::StrCat(getppid()));
  input.process_bytes = std::max<int64_t>(0, mine.private_dirty - passed);
  input.process_once_bytes = above.pss + mine.pss - mine.private_dirty;
  fit.certificate = Certify(input);
  return fit;
}

// The first iterations take pages from the kernel for the first time.
constexpr int kLeftOut = 4;
constexpr int kMeasured = 6;

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
  cyclic.checkpoint.folder.clear();
  config.offload = {};
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
    for (const auto part : kStageParts) {
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
  few.hosts.clear();
  few.stage_per_layer = true;
  few.length.iterations = kLeftOut + kMeasured;
  few.length.evaluation = {};
  few.length.warmup_updates = 0;
  // The layers take as long in any rule.
  if (!few.config.cyclic.rule.has_value()) few.chosen = Rule::kDp;
  const CyclicConfig& cyclic = few.config.cyclic;
  std::fprintf(stderr, "ringzero: measuring %d iterations with %d workers at a time ...\n",
               few.length.iterations, cyclic.workers);
  const RunWorkersOptions options{
      .launch = {.workers = cyclic.workers, .peer_timeout = cyclic.peer_timeout},
      .threads = cyclic.threads,
      .metrics_count = kMetricsCount};
  const auto work = [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
    RZ_ASSIGN_OR_RETURN(
        const WorkerReport report,
        TrainWorker({.input = few, .seat = std::move(seat), .costs_from = Iteration(kLeftOut)}));
    return ToBytes(report);
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      RunWorkers(
                          options, [&](const PlanFunction&) { return PlanRun(few); }, work));
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

// Where the times come from. Cores are shared. Uses torch. InvalidArgument if the profile is of
// another run.
absl::StatusOr<PlanTimes> FindSpeed(const RunInput& input, const PlannedRun& run,
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
        "small ones are slower, and messages within a host are free: --profile FILE measures",
        1e-9 * machine.flops_per_second, 1e-9 * machine.bytes_per_second);
  }
  ShareCores(CoresOfJob(input.hosts, plan.workers) / input.config.cyclic.threads, times.speed);
  times.speed.links = LinkOf(input.config.cyclic);
  times.speed.links.hosts = CountByHost(input.hosts, plan.workers);
  return times;
}

// How long an iteration of the plan will take here, and why. The errors of FindSpeed. A disk that
// cannot be probed here is said, and is no error: the run may be for another machine.
absl::StatusOr<PlanTimes> PredictTimes(const RunInput& input, const PlannedRun& run,
                                       const ShortRun& short_run,
                                       const std::optional<SavedProfile>& profile) {
  const Plan& plan = run.planned.plan;
  RZ_ASSIGN_OR_RETURN(PlanTimes times, FindSpeed(input, run, profile));
  const size_t hosts = times.speed.links.hosts.size();
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(short_run, times.speed));
  RZ_ASSIGN_OR_RETURN(const std::string window, DescribeLargerWindow(input, short_run, plan));
  times.text = absl::StrCat(
      "\ntimes       from ", times.text, "; ", CoresText(UsableCores()),
      hosts == 1
          ? ""
          : absl::StrCat(" of each of ", hosts, " hosts like this one, ", times.speed.links.text),
      "\n", DescribeStep(step), window);
  if (!plan.uses_disk()) return times;
  const absl::StatusOr<TierVerdict> disk = JudgeTier(input.config, run.planned, times.speed);
  absl::StrAppend(&times.text,
                  disk.ok()
                      ? disk->text
                      : absl::StrCat("disk        not probed: ", disk.status().message(), "\n"));
  return times;
}

// What is printed: the first iterations show all that repeats.
constexpr int kShownIterations = 2;

// The host of each worker, an equal run of numbers on each.
absl::StatusOr<std::vector<std::string>> PlacesOn(int hosts, int workers) {
  if (hosts > workers) {
    return InvalidArgument("--hosts: wanted at most ", workers, " (one per worker), found ", hosts);
  }
  std::vector<std::string> places;
  for (int w = 0; w < workers; ++w) places.push_back(absl::StrCat("host", w * hosts / workers));
  return places;
}

// What would carry messages if the workers were there.
absl::StatusOr<std::string> DescribeTransport(const Config& config, int hosts,
                                              const std::vector<std::string>& places) {
  if (config.cyclic.transport == TransportChoice::kLocal) {
    if (hosts == 1) return "local between all workers (threads of one process)";
    return InvalidArgument("cyclic.transport: local is for threads of one process, not for ", hosts,
                           " hosts");
  }
  RZ_ASSIGN_OR_RETURN(const ChosenTransport chosen,
                      ChooseTransport(config.cyclic.transport, places));
  return chosen.why;
}

// The profile to predict with: --profile's, measured now if its file is not there, or else the one
// that makes the plan, if any.
absl::StatusOr<std::optional<SavedProfile>> FindProfile(const std::string& path,
                                                        const RunInput& input) {
  if (path.empty()) return FrozenProfile(input.config);
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
// proof of the plan and its rule in `input`. Above the table: why this rule, if it was chosen.
absl::StatusOr<std::string> DescribeFitInChild(RunInput& input) {
  const auto body = [&](WorkerContext&) -> absl::StatusOr<std::string> {
    PrepareTorch(input.config.cyclic.threads);
    RZ_ASSIGN_OR_RETURN(PlannedRun run, PlanRun(input));
    RZ_ASSIGN_OR_RETURN(const RunFit fit, FitRun(input, run, Parent::kLauncher));
    const absl::Status fits = CheckFit(fit.certificate, fit.budgets);
    const std::string text = absl::StrCat(
        run.planned.rule_choice, run.planned.rule_choice.empty() ? "" : "\n",
        DescribeFit(fit.certificate, fit.budgets, fit.unit), fit.text, fit.text.empty() ? "" : "\n",
        fits.ok() ? "" : absl::StrCat("warning: ", fits.message(), "\n"));
    return OrderedJson({{"fit", text},
                        {"proof", run.planned.proof.Write()},
                        {"rule", ToString(run.planned.plan.rule)},
                        {"streamed", {input.streamed.share, input.streamed.staging_bytes}}})
        .dump();
  };
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results,
                      LaunchProcesses({.alone = kPlanningProcess}, body));
  const OrderedJson found = OrderedJson::parse(results[0]);
  RZ_ASSIGN_OR_RETURN(input.proof, PlanProof::Parse(found["proof"]));
  RZ_ASSIGN_OR_RETURN(input.chosen, ParseRule(found["rule"]));
  input.streamed = {found["streamed"][0], found["streamed"][1]};
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
  inputs.push_back({"cyclic.efficiency", config.cyclic.efficiency});
  return CheckOutputFiles(outputs, inputs);
}

}  // namespace

absl::StatusOr<RunInput> OpenRun(Config config, std::vector<std::string> hosts) {
  RunInput input{.config = std::move(config), .hosts = std::move(hosts)};
  RZ_ASSIGN_OR_RETURN(input.data,
                      OpenDataset(input.config.data, input.config.model, input.config.seed));
  RZ_RETURN_IF_ERROR(CheckModelFitsData(input.config, input.data->shape));
  RZ_ASSIGN_OR_RETURN(input.length,
                      MeasureRun(input.config, input.data->train.size(), input.data->test.size()));
  if (input.config.curve_ends_with_run) {
    EndCurve(input.length.iterations, input.config.optimizer.curve);
  }
  return input;
}

absl::StatusOr<PlannedRun> PlanRun(const RunInput& input, const PlanFunction& plan_model) {
  const Config& config = input.config;
  absl::StatusOr<PlannedRun> made = MakeConfiguredModel(config.model, input.data->shape);
  if (!made.ok()) return PlanError(config, made.status());
  PlannedRun& run = *made;
  const std::vector<LayerDescription> counted = run.model.layers;
  PlanRequest request = PlanRequestOf(config, input.length);
  request.proof = input.proof;
  if (input.resumed != nullptr) request.first_iteration = input.resumed->state().version.value;
  if (input.chosen.has_value()) request = WithRule(std::move(request), *input.chosen);
  if (input.streamed.share >= 0) {
    request.streamed_share = input.streamed.share;
    request.staging_bytes = input.streamed.staging_bytes;
  }
  if (input.stage_per_layer) {
    request.stages = static_cast<int>(counted.size());
    request.boundaries.resize(counted.size());
    std::iota(request.boundaries.begin(), request.boundaries.end(), 0);
  } else {
    RZ_ASSIGN_OR_RETURN(std::optional<SavedProfile> frozen, FrozenProfile(config));
    if (frozen.has_value()) {
      RZ_RETURN_IF_ERROR(TakeFrozenCosts(config, *std::move(frozen), request.question, run.model));
    }
    const TransportChoice transport = config.cyclic.transport;
    // These share nothing; that they cannot be had matters only where something travels.
    if (transport != TransportChoice::kUcx && transport != TransportChoice::kNccl) {
      RZ_ASSIGN_OR_RETURN(request.hosts,
                          WorkersThatShare(transport, input.hosts, config.cyclic.workers));
    }
    if (request.question.has_value()) {
      request.question->links.hosts = CountByHost(input.hosts, config.cyclic.workers);
      request.question->cores =
          CoresOfJob(input.hosts, config.cyclic.workers) / config.cyclic.threads;
    }
  }
  absl::StatusOr<PlannedModel> planned = plan_model(run.model, request);
  if (!planned.ok()) return PlanError(config, planned.status());
  run.planned = *std::move(planned);
  run.sample_flops = FlopsOf(counted, run.planned.plan);
  return made;
}

std::string DescribeSlowType(const Config& config) {
  const ValueType type = config.precision.compute;
  if (type == ValueType::kFp32) return "";
  const double slowness = SlownessOf(type);
  if (slowness <= 2) return "";
  return absl::StrFormat(
      "%s products take %.1f times as long as fp32's on this processor: %s.enabled saves traffic "
      "here, not time (docs/precision.md)",
      ToString(type), slowness, ToString(type));
}

absl::StatusOr<MemoryForecast> ForecastRun(const Config& config, const PlannedRun& run) {
  // A convolution's gradient is a tensor of its own.
  const bool linear = config.model.type != ModelConfig::Type::kResNet;
  const Precision& precision = run.planned.precision;
  const bool plain = precision.compute == ValueType::kFp32 && precision.sums == ValueType::kFp32;
  const std::vector<StagePlan>& stages = run.planned.plan.stages;
  MemoryOptions options{.moment_bytes = MomentBytes(config.optimizer, run.planned.layouts, stages),
                        .scratch_bytes = ScratchBytes(config.optimizer, run.planned.layouts),
                        .gradients_join_sums = linear && plain && !config.cyclic.products_first};
  for (const StageLayout& layout : run.planned.layouts) {
    // A gradient takes as much as a sum in the computing type would.
    const Precision gradients{.sums = precision.compute};
    options.gradient_bytes.push_back(StageLayout::Make(layout.parameters, {}, gradients).sum_bytes);
  }
  return ForecastMemory(run.planned.plan, options);
}

absl::StatusOr<RunFit> FitRun(RunInput& input, PlannedRun& run, Parent parent) {
  const Config& config = input.config;
  const OffloadConfig& offload = config.offload;
  const bool said = config.keys.Given("zero_optimization.offload_optimizer.ratio") ||
                    !offload.stages.empty() || !config.cyclic.memory_budget.host.has_value();
  const bool one_host = CountByHost(input.hosts, config.cyclic.workers).size() == 1;
  if (said || !one_host || parent == Parent::kStranger || !run.planned.plan.any_streams()) {
    return CertifyRun(input, run, parent);
  }
  std::vector<Streamed> ways;  // the one that takes most memory first
  for (double share = 0; share <= 1; share += 0.125) ways.push_back({share, offload.staging_bytes});
  const int64_t chosen = offload.staging_bytes > 0 ? 0 : run.planned.plan.staging_bytes;
  for (int64_t less = chosen / 2; less >= kLeastStaging; less /= 2) ways.push_back({1, less});
  const auto plan = [&](const Streamed& streamed) -> absl::Status {
    input.streamed = streamed;
    RZ_ASSIGN_OR_RETURN(run, PlanRun(input));
    return absl::OkStatus();
  };
  // A pass is measured once, beside as little as possible.
  RZ_RETURN_IF_ERROR(plan(ways.back()));
  RZ_ASSIGN_OR_RETURN(RunFit fit, CertifyRun(input, run, parent));
  if (!CheckFit(fit.certificate, fit.budgets).ok()) return fit;
  for (const Streamed& way : ways) {
    RZ_RETURN_IF_ERROR(plan(way));
    RZ_RETURN_IF_ERROR(CertifyPlan(input, run, fit));
    if (CheckFit(fit.certificate, fit.budgets).ok()) break;
  }
  const int64_t streamed = fit.certificate.HostPeak(0, MemoryPlace::kDisk);
  fit.text = absl::StrFormat(
      "offload: %s go to NVMe, optimizer states through %s of memory of each worker: the least "
      "with which the run fits into cyclic.memory_budget.host",
      SizeText(double(streamed)), SizeText(double(run.planned.plan.staging_bytes)));
  return fit;
}

absl::StatusOr<TierVerdict> JudgeRunDisk(const RunInput& input, const PlannedRun& run) {
  RZ_ASSIGN_OR_RETURN(const std::optional<SavedProfile> profile, FrozenProfile(input.config));
  RZ_ASSIGN_OR_RETURN(PlanTimes times, FindSpeed(input, run, profile));
  RZ_ASSIGN_OR_RETURN(TierVerdict disk, JudgeTier(input.config, run.planned, times.speed));
  RZ_RETURN_IF_ERROR(CheckHidden(input.config, disk));
  return disk;
}

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
  RZ_ASSIGN_OR_RETURN(const auto places, PlacesOn(line.hosts, loaded.cyclic.workers));
  RZ_ASSIGN_OR_RETURN(const std::string transport, DescribeTransport(loaded, line.hosts, places));
  RZ_ASSIGN_OR_RETURN(RunInput input, OpenRun(std::move(loaded), places));
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
    const std::vector<int64_t> moments =
        MomentBytes(config.optimizer, run.planned.layouts, plan.stages);
    RZ_ASSIGN_OR_RETURN(
        const std::vector<OwnBlock> table,
        BlockTable(plan, worker, {.moment_bytes = moments, .metrics_count = kMetricsCount}));
    absl::StrAppend(&text, "\n", DescribeBlocks(worker, table));
  }
  RZ_RETURN_IF_ERROR(WritePlanFiles(line, plan, times.speed));
  return PrintText(line, text);
}

}  // namespace ringzero
