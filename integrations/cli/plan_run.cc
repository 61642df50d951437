// From a configuration to its data, the length of the run, its plan and the plan's memory.
#include "integrations/cli/plan_run.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/worker_report.h"
#include "integrations/torch/configured/configured_run.h"
#include "integrations/torch/machine_speed.h"
#include "integrations/torch/pass_memory.h"
#include "sharding/schedule.h"
#include "zero/optimizer_state.h"
#include "zero/pool_memory.h"

namespace ringzero {
namespace {

absl::Status CheckModelFitsData(const Config& config, const SampleShape& shape) {
  const ModelConfig& model = config.model;
  if (model.type == ModelConfig::Type::kGpt && shape.classes > model.vocab) {
    return config.Error("model.vocab", absl::StrCat("the data has tokens up to ", shape.classes - 1,
                                                    ", so at least ", shape.classes,
                                                    " are needed, found ", model.vocab));
  }
  if (model.type != ModelConfig::Type::kResNet) return absl::OkStatus();
  const std::string found = absl::StrJoin(shape.input, " x ");
  if (shape.input.size() != 3 || shape.input[1] != shape.input[2]) {
    return config.Error("model.type",
                        absl::StrCat("resnet wants square images, the data has ", found));
  }
  if (shape.input[0] != 1 && shape.input[0] != 3) {
    return config.Error("data.input",
                        absl::StrCat("wanted images of 1 or 3 channels, found ", found));
  }
  if (model.channels != 0 && model.channels != shape.input[0]) {
    return config.Error("model.channels", absl::StrCat("the data's images have ", shape.input[0],
                                                       ", found ", model.channels));
  }
  return absl::OkStatus();
}

constexpr char kProfileFormat[] = "ringzero cost profile 1";

// A whole number of a profile, from 0 to a day's nanoseconds.
template <typename T>
absl::Status Read(const nlohmann::json& object, const char* key, T& value) {
  constexpr int64_t kMost = int64_t{86400} * 1000000000;
  const auto found = object.find(key);
  if (found == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is missing"));
  }
  if (!found->is_number_integer() || *found < 0 || *found > kMost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", key, "\": wanted a whole number from 0 to ", kMost, ", found ", found->dump()));
  }
  value = static_cast<T>(found->get<int64_t>());
  return absl::OkStatus();
}

absl::Status ReadTimes(const nlohmann::json& json, StageTicks& times) {
  RZ_RETURN_IF_ERROR(Read(json, "forward_ns", times.forward));
  RZ_RETURN_IF_ERROR(Read(json, "backward_ns", times.backward));
  RZ_RETURN_IF_ERROR(Read(json, "add_ns", times.add));
  return Read(json, "update_ns", times.update);
}

absl::StatusOr<SavedProfile> ParseProfile(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kProfileFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted JSON with \"format\": \"", kProfileFormat, "\""));
  }
  SavedProfile saved;
  CostProfile& profile = saved.profile;
  if (!json.contains("frozen") || !json["frozen"].is_boolean()) {
    return absl::InvalidArgumentError("\"frozen\": wanted true or false");
  }
  saved.frozen = json["frozen"].get<bool>();
  RZ_RETURN_IF_ERROR(Read(json, "micro_batch", profile.micro_batch));
  RZ_RETURN_IF_ERROR(Read(json, "threads", profile.threads));
  RZ_RETURN_IF_ERROR(Read(json, "workers", profile.workers));
  RZ_RETURN_IF_ERROR(Read(json, "lap_ns", profile.lap_nanoseconds));
  RZ_RETURN_IF_ERROR(Read(json, "message_ns", profile.message_nanoseconds));
  if (!json.contains("layers") || !json["layers"].is_array()) {
    return absl::InvalidArgumentError("\"layers\": wanted a list");
  }
  for (const nlohmann::json& entry : json["layers"]) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) {
      return absl::InvalidArgumentError("\"layers\": each wants a \"name\"");
    }
    LayerTimes& layer = profile.layers.emplace_back();
    layer.name = entry["name"].get<std::string>();
    const absl::Status read = ReadTimes(entry, layer.nanoseconds);
    if (!read.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer \"", layer.name, "\": ", read.message()));
    }
  }
  return saved;
}

PlanRequest RequestOf(const Config& config, const RunLength& length) {
  const CyclicConfig& cyclic = config.cyclic;
  return {.workers = cyclic.workers,
          .zero_stage = config.zero_stage,
          .laps = static_cast<int>(config.batch.laps),
          .rule = cyclic.rule,
          .slack = cyclic.slack,
          .predict = cyclic.predict,
          .strict = cyclic.strict,
          .clipping = cyclic.clipping,
          .stages = cyclic.boundaries.empty() ? cyclic.stages
                                              : static_cast<int>(cyclic.boundaries.size()),
          .boundaries = cyclic.boundaries,
          .balance = cyclic.balance,
          .micro_batch = static_cast<int>(config.batch.micro_batch),
          .epoch_samples = length.epoch_samples,
          .window = cyclic.window,
          .pending = cyclic.pending,
          .stagger = cyclic.stagger,
          .retain = cyclic.retain,
          .exchange = cyclic.exchange,
          .iterations = length.iterations,
          .evaluation = length.evaluation,
          .precision = config.precision};
}

// What the plan's own checks refuse was asked for by the configuration: bad input, with the key if
// one can be named.
absl::Status PlanError(const Config& config, const absl::Status& status) {
  const bool refused = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kFailedPrecondition;
  if (!refused) return Annotate(status, config.keys.file());
  if (config.cyclic.window != 0 && absl::StrContains(status.message(), "window")) {
    return config.Error("cyclic.window", status.message());
  }
  return absl::InvalidArgumentError(absl::StrCat(config.keys.file(), ": ", status.message()));
}

// Of one sample. What has nothing to train before it has no backward.
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

using Requested = std::function<absl::StatusOr<PlanRequest>(ModelDescription&)>;

absl::StatusOr<PlannedRun> PlanRequested(const Config& config, const SampleShape& shape,
                                         const Requested& requested) {
  absl::StatusOr<ConfiguredModel> made = MakeConfiguredModel(config.model, shape);
  if (!made.ok()) return PlanError(config, made.status());
  PlannedRun run{.layers = std::move(made->layers), .model = std::move(made->description)};
  const std::vector<LayerDescription> counted = run.model.layers;
  // Its errors have the file's name already.
  RZ_ASSIGN_OR_RETURN(const PlanRequest request, requested(run.model));
  absl::StatusOr<PlannedModel> planned = PlanModel(run.model, request);
  if (!planned.ok()) return PlanError(config, planned.status());
  run.planned = *std::move(planned);
  run.sample_flops = FlopsOf(counted, run.planned.plan);
  return run;
}

// The costs of a frozen profile instead of counted ones.
absl::Status TakeFrozenCosts(const Config& config, ModelDescription& model) {
  absl::StatusOr<SavedProfile> saved = ReadProfile(config.cyclic.profile);
  if (!saved.ok()) return config.Error("cyclic.profile", saved.status().message());
  const auto refuse = [&](absl::string_view why) {
    return config.Error("cyclic.profile", absl::StrCat(config.cyclic.profile, ": ", why));
  };
  if (!saved->frozen) {
    return refuse(
        "it is not frozen: a plan made from it would not be the same for all; ringzero plan CONFIG "
        "--profile FILE --freeze");
  }
  const absl::Status fits = CheckProfile(*saved, config, model);
  if (!fits.ok()) return refuse(fits.message());
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StageTicks& times = saved->profile.layers[i].nanoseconds;
    model.layers[i].cost = {.forward = std::max<int64_t>(times.forward, 1),
                            .backward = std::max<int64_t>(times.backward, 1)};
  }
  return absl::OkStatus();
}

absl::StatusOr<PassMemory> MeasureRunPass(const RunFitRequest& request) {
  LapRunner laps(request.data, BatchesOf(request.config, request.length));
  const std::vector<double> metrics(kMetricsCount);
  PassMemoryOptions options{.metrics_count = kMetricsCount};
  options.train = [&](RingModel& ring, const LapTask& lap) {
    laps.Train(ring, lap);
    return ring.EndMicroBatch(metrics);
  };
  if (request.length.evaluation.every > 0) {
    options.evaluate = [&](RingModel& ring, const LapTask&) {
      laps.Evaluate(ring, 0);
      return absl::OkStatus();
    };
  }
  return MeasurePass(request.run, options);
}

std::vector<int> HostsOf(int workers, int hosts) {
  std::vector<int> of;
  for (int w = 0; w < workers; ++w) of.push_back(w * hosts / workers);
  return of;
}

// What a stage's moments take beyond their bytes: one block, whose last page is whole.
int64_t RoundingOf(int64_t bytes, int64_t huge_page_bytes) {
  const int64_t page = bytes >= huge_page_bytes ? huge_page_bytes : 4096;
  return (bytes + page - 1) / page * page - bytes;
}

absl::StatusOr<std::vector<WorkerExtras>> ExtrasOf(const RunFitRequest& request,
                                                   const MemoryForecast& states) {
  const Plan& plan = request.run.planned.plan;
  const std::vector<StageLayout>& layouts = request.run.planned.layouts;
  const std::vector<int64_t> moments = MomentBytes(request.config.optimizer, layouts);
  std::vector<WorkerExtras> extras(static_cast<size_t>(plan.workers));
  const int64_t huge_page = HugePageBytes();
  for (int w = 0; w < plan.workers; ++w) {
    WorkerExtras& mine = extras[static_cast<size_t>(w)];
    RZ_ASSIGN_OR_RETURN(mine.pools, PoolBytes({.plan = plan,
                                               .layouts = layouts,
                                               .states = states.workers[static_cast<size_t>(w)],
                                               .self = WorkerId(w),
                                               .metrics_count = kMetricsCount,
                                               .kind = PoolKindOf(request.config, request.hosts)}));
    for (int j = 0; j < plan.stage_count(); ++j) {
      // In its modules; and at worker 0 the initial ones.
      mine.statistics += (w == 0 ? 2 : 1) * layouts[j].statistics_bytes;
      if (!plan.has_masters(WorkerId(w), StageId(j)) || !plan.exchange) continue;
      const bool trains = layouts[j].sum_bytes > 0;
      if (trains) mine.rounding += RoundingOf(moments[j], huge_page);
      // Parameters that do not travel are blocks of their own, too.
      if (plan.zero_stage > 0 && plan.workers > 1) continue;
      mine.rounding +=
          VersionBuffers(plan, StageId(j)) * RoundingOf(layouts[j].parameter_bytes, huge_page);
      const int masters = trains && plan.has_two_masters() ? 2 : 1;
      mine.rounding += masters * RoundingOf(layouts[j].master_bytes, huge_page);
    }
  }
  return extras;
}

// Of this host: as the configuration says, or as it is found.
FitBudgets FindBudgets(const Config& config) {
  FitBudgets budgets;
  const auto& given = config.cyclic.memory_budget;
  for (const auto& [place, bytes] :
       {std::pair(MemoryPlace::kHost, given.host), std::pair(MemoryPlace::kDevice, given.device),
        std::pair(MemoryPlace::kDisk, given.disk)}) {
    FitBudget& budget = budgets[static_cast<size_t>(place)];
    if (bytes.has_value()) {
      budget = {.bytes = bytes, .source = absl::StrCat("cyclic.memory_budget.", ToString(place))};
    } else if (place == MemoryPlace::kHost) {
      budget = FindHostMemory("/");
    }
  }
  return budgets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenData(const Config& config) {
  const bool tokens = config.model.type == ModelConfig::Type::kGpt;
  DatasetOptions options;
  options.type = config.data.type;
  options.path = config.data.path;
  options.sequence = config.model.seq;
  if (tokens) options.vocabulary = config.model.vocab;
  options.random_input = config.data.input;
  options.random_kind = tokens ? SampleShape::Kind::kTokens : SampleShape::Kind::kImage;
  options.random_classes = config.data.classes;
  options.random_samples = config.data.samples;
  options.seed = config.seed;
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> data, OpenDataset(options));
  RZ_RETURN_IF_ERROR(CheckModelFitsData(config, data->shape()));
  return data;
}

absl::StatusOr<RunLength> MeasureRun(const Config& config, const Dataset& data) {
  RunLength length;
  const int64_t samples = data.train().size();
  const int64_t batch = config.batch.train_batch;
  length.iterations_per_epoch = samples / batch;
  if (length.iterations_per_epoch == 0) {
    return config.Error("train_batch_size", absl::StrCat(batch,
                                                         " samples per update, but the data "
                                                         "has only ",
                                                         samples));
  }
  const int64_t rest = samples % batch;
  if (rest != 0 && !config.data.drop_last) {
    ++length.iterations_per_epoch;
    length.epoch_samples = samples;
  }
  const int64_t iterations = config.iterations.has_value()
                                 ? *config.iterations
                                 : *config.epochs * length.iterations_per_epoch;
  if (iterations > std::numeric_limits<int>::max() - 1) {
    return config.Error(config.epochs.has_value() ? "epochs" : "iterations",
                        absl::StrCat(iterations, " iterations are too many"));
  }
  length.iterations = static_cast<int>(iterations);
  if (rest != 0 && iterations >= length.iterations_per_epoch) {
    length.notes.push_back(
        config.data.drop_last
            ? absl::StrCat("the last ", rest, " of ", samples,
                           " samples of each epoch's order are left out: batches have ", batch)
            : absl::StrCat("the last batch of each epoch has ", rest, " samples, the others ",
                           batch));
  }
  length.test_samples = data.test().size();
  if (config.evaluation.samples != 0) {
    length.test_samples = std::min(length.test_samples, config.evaluation.samples);
  }
  const int64_t per_lap = int64_t{config.evaluation.batch_size} * config.cyclic.workers;
  const int every = config.evaluation.every.value_or(length.iterations);
  if (every == 0 || !config.cyclic.exchange) return length;
  if (length.test_samples == 0) {
    length.notes.push_back("the data has no held-out samples: no evaluation");
    return length;
  }
  length.evaluation.every = std::min(every, length.iterations);
  length.evaluation.laps = static_cast<int>((length.test_samples + per_lap - 1) / per_lap);
  return length;
}

BatchesOptions BatchesOf(const Config& config, const RunLength& length) {
  return {.seed = config.seed,
          .micro_batch = config.batch.micro_batch,
          .train_batch = config.batch.train_batch,
          .iterations_per_epoch = length.iterations_per_epoch,
          .evaluation_batch = config.evaluation.batch_size,
          .test_samples = length.test_samples};
}

int64_t TokensPerSample(const Config& config) {
  return config.model.type == ModelConfig::Type::kGpt ? config.model.seq : 0;
}

void EndCurve(int iterations, Config& config) {
  if (config.curve_ends_with_run) EndCurve(iterations, config.optimizer.curve);
}

TransportChoice ChoiceOf(CyclicConfig::Transport transport) {
  switch (transport) {
    case CyclicConfig::Transport::kShm: return TransportChoice::kShm;
    case CyclicConfig::Transport::kUcx: return TransportChoice::kUcx;
    case CyclicConfig::Transport::kNccl: return TransportChoice::kNccl;
    case CyclicConfig::Transport::kAuto:
    case CyclicConfig::Transport::kLocal: break;
  }
  return TransportChoice::kAuto;
}

absl::Status WriteProfile(const std::string& path, const SavedProfile& saved) {
  const CostProfile& profile = saved.profile;
  OrderedJson json = {{"format", kProfileFormat},
                      {"frozen", saved.frozen},
                      {"micro_batch", profile.micro_batch},
                      {"threads", profile.threads},
                      {"workers", profile.workers},
                      {"lap_ns", profile.lap_nanoseconds},
                      {"message_ns", profile.message_nanoseconds},
                      {"layers", OrderedJson::array()}};
  for (const LayerTimes& layer : profile.layers) {
    const StageTicks& times = layer.nanoseconds;
    json["layers"].push_back({{"name", layer.name},
                              {"forward_ns", times.forward},
                              {"backward_ns", times.backward},
                              {"add_ns", times.add},
                              {"update_ns", times.update}});
  }
  return WriteWholeFile(path, json.dump(2) + "\n");
}

absl::StatusOr<SavedProfile> ReadProfile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  absl::StatusOr<SavedProfile> saved = ParseProfile(text);
  if (!saved.ok()) return Annotate(saved.status(), path);
  return saved;
}

absl::Status CheckProfile(const SavedProfile& saved, const Config& config,
                          const ModelDescription& model) {
  const CostProfile& profile = saved.profile;
  const auto differs = [](const std::string& what, const auto& wanted, const auto& found) {
    return absl::InvalidArgumentError(absl::StrCat("it was measured for another run: wanted ", what,
                                                   " ", wanted, ", found ", found));
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

PoolKind PoolKindOf(const Config& config, int hosts) {
  using Transport = CyclicConfig::Transport;
  switch (config.cyclic.transport) {
    case Transport::kLocal: return PoolKind::kHandles;
    case Transport::kShm: return PoolKind::kShared;
    case Transport::kUcx:
    case Transport::kNccl: return PoolKind::kReceived;
    case Transport::kAuto: break;
  }
  return hosts == 1 ? PoolKind::kShared : PoolKind::kReceived;
}

absl::StatusOr<PlannedRun> PlanRun(const Config& config, const RunLength& length,
                                   const SampleShape& shape, int hosts) {
  return PlanRequested(config, shape, [&](ModelDescription& model) -> absl::StatusOr<PlanRequest> {
    if (!config.cyclic.profile.empty()) RZ_RETURN_IF_ERROR(TakeFrozenCosts(config, model));
    PlanRequest request = RequestOf(config, length);
    request.free_slots = PoolKindOf(config, hosts) != PoolKind::kReceived;
    return request;
  });
}

absl::StatusOr<PlannedRun> PlanLayers(const Config& config, const RunLength& length,
                                      const SampleShape& shape) {
  return PlanRequested(config, shape, [&](ModelDescription& model) -> absl::StatusOr<PlanRequest> {
    PlanRequest request = RequestOf(config, length);
    request.stages = static_cast<int>(model.layers.size());
    request.boundaries.resize(model.layers.size());
    std::iota(request.boundaries.begin(), request.boundaries.end(), 0);
    return request;
  });
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
  MemoryOptions options{.moment_bytes = MomentBytes(config.optimizer, run.planned.layouts),
                        .scratch_bytes = ScratchBytes(config.optimizer, run.planned.layouts),
                        .gradients_join_sums = linear && plain && !config.cyclic.products_first};
  for (const StageLayout& layout : run.planned.layouts) {
    // As sums in the type that computes would lie.
    const Precision gradients{.sums = precision.compute};
    options.gradient_bytes.push_back(StageLayout::Make(layout.parameters, {}, gradients).sum_bytes);
  }
  return ForecastMemory(run.planned.plan, options);
}

absl::StatusOr<RunFit> CertifyRun(const RunFitRequest& request) {
  const Plan& plan = request.run.planned.plan;
  // Before this process takes any of what there is.
  RunFit fit{.budgets = FindBudgets(request.config)};
  FitInput input;
  RZ_ASSIGN_OR_RETURN(input.states, ForecastRun(request.config, request.run));
  RZ_ASSIGN_OR_RETURN(input.extras, ExtrasOf(request, input.states));
  input.hosts = HostsOf(plan.workers, request.hosts);
  input.one_process = request.config.cyclic.transport == CyclicConfig::Transport::kLocal;
  const PoolKind kind = PoolKindOf(request.config, request.hosts);
  fit.unit = kind == PoolKind::kReceived ? FitUnit::kWorker : FitUnit::kHost;
  // Where not even this fits, there may be no room to measure the rest.
  fit.certificate = Certify(input);
  if (!CheckFit(fit.certificate, fit.budgets).ok()) return fit;
  RZ_ASSIGN_OR_RETURN(const PassMemory pass, MeasureRunPass(request));
  input.pass = {.setup = pass.setup,
                .activations = pass.activations,
                .evaluation = pass.evaluation,
                .with_waiting_gradients = pass.with_waiting_gradients};
  // What the micro-batch took is still there, and is not the process' own.
  const int64_t passed = std::max({pass.setup, pass.with_waiting_gradients, pass.evaluation});
  const ProcessPages mine = PagesOfProcess("self");
  ProcessPages parent;
  if (request.parent == RunFitRequest::Parent::kLauncher) {
    parent = PagesOfProcess(absl::StrCat(getppid()));
  }
  input.process_bytes = std::max<int64_t>(0, mine.private_dirty - passed);
  input.process_once_bytes = parent.pss + mine.pss - mine.private_dirty;
  fit.certificate = Certify(input);
  return fit;
}

OrderedJson RunFitJson(const RunFit& fit) {
  OrderedJson json;
  for (const MemoryPlace place : kAllMemoryPlaces) {
    const int host = fit.certificate.FullestHost(place);
    OrderedJson& of = json[ToString(place)];
    for (const FitLine& line : fit.certificate.lines) {
      if (line.place == place) of[line.name] = fit.certificate.Bytes(line, host);
    }
    of["peak"] = fit.certificate.HostPeak(host, place);
    const FitBudget& budget = fit.budgets[static_cast<size_t>(place)];
    of["budget"] = budget.bytes.has_value() ? OrderedJson(*budget.bytes) : OrderedJson(nullptr);
  }
  return json;
}

}  // namespace ringzero
