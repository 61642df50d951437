// From a configuration to its data, the length of the run, its plan and the plan's memory.
#include "integrations/cli/plan_run.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/worker_report.h"
#include "integrations/torch/machine_speed.h"
#include "integrations/torch/pass_memory.h"
#include "sharding/block_table.h"
#include "zero/optimizer_state.h"

namespace ringzero {

using Json = nlohmann::json;

constexpr char kProfileFormat[] = "ringzero cost profile 2";

namespace {

absl::Status CheckModelFitsData(const Config& config, const SampleShape& shape) {
  const ModelConfig& model = config.model;
  if (model.type == ModelConfig::Type::kGpt && shape.classes > model.gpt.vocab) {
    return config.Error("model.vocab", absl::StrCat("the data has tokens up to ", shape.classes - 1,
                                                    ", so at least ", shape.classes,
                                                    " are needed, found ", model.gpt.vocab));
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

// Every member must be there and be of its kind. Numbers are whole, from 0 to a day's nanoseconds.
absl::StatusOr<SavedProfile> ParseProfile(const std::string& text) {
  constexpr int64_t kMost = int64_t{86400} * 1000000000;
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kProfileFormat) {
    return InvalidArgument("wanted JSON with \"format\": \"", kProfileFormat, "\"");
  }
  SavedProfile saved;
  const Json layers = json.value("layers", Json());
  if (!layers.is_array()) return absl::InvalidArgumentError("\"layers\": wanted a list");
  saved.profile.layers.resize(layers.size());
  Json sample = saved.profile;
  sample["frozen"] = false;
  sample = sample.flatten();
  const Json found = json.flatten();
  for (const auto& [path, wanted] : sample.items()) {
    const Json value = found.value(path, Json());
    const bool number = wanted.is_number();
    if (number ? value.is_number_integer() && value >= 0 && value <= kMost
               : value.type() == wanted.type()) {
      continue;
    }
    const std::string kind = number ? absl::StrCat("a whole number from 0 to ", kMost)
                             : wanted.is_boolean() ? "true or false"
                                                   : "a text";
    return InvalidArgument("\"", path.substr(1), "\": wanted ", kind, ", found ",
                           value.is_null() ? "nothing" : value.dump());
  }
  json.get_to(saved.profile);
  json["frozen"].get_to(saved.frozen);
  return saved;
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

// The costs of a frozen profile instead of counted ones.
absl::Status TakeFrozenCosts(const Config& config, ModelDescription& model) {
  absl::StatusOr<SavedProfile> saved = ReadProfile(config.cyclic.profile);
  if (!saved.ok()) return config.Error("cyclic.profile", saved.status().message());
  if (!saved->frozen) {
    return config.Error(
        "cyclic.profile",
        absl::StrCat(saved->path,
                     ": it is not frozen: a plan made from it would not be the same for "
                     "all; ringzero plan CONFIG --profile FILE --freeze"));
  }
  const absl::Status fits = CheckProfile(*saved, config, model);
  if (!fits.ok()) return config.Error("cyclic.profile", fits.message());
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StageTicks& times = saved->profile.layers[i].nanoseconds;
    model.layers[i].cost = {.forward = std::max<int64_t>(times.forward, 1),
                            .backward = std::max<int64_t>(times.backward, 1)};
  }
  return absl::OkStatus();
}

absl::StatusOr<PassMemory> MeasureRunPass(const RunInput& input, const PlannedRun& run) {
  LapRunner laps(*input.data, BatchesOf(input));
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

// What a block takes beyond its bytes: its last page is whole.
int64_t RoundingOf(int64_t bytes, int64_t huge_page_bytes) {
  const int64_t page = bytes >= huge_page_bytes ? huge_page_bytes : 4096;
  return (bytes + page - 1) / page * page - bytes;
}

absl::StatusOr<std::vector<WorkerExtras>> ExtrasOf(const RunInput& input,
                                                   const PlannedModel& planned) {
  const Plan& plan = planned.plan;
  const std::vector<int64_t> moments = MomentBytes(input.config.optimizer, planned.layouts);
  std::vector<WorkerExtras> extras(static_cast<size_t>(plan.workers));
  const int64_t huge_page = HugePageBytes();
  for (int w = 0; w < plan.workers; ++w) {
    WorkerExtras& mine = extras[static_cast<size_t>(w)];
    RZ_ASSIGN_OR_RETURN(mine.pools, PoolBytes({.plan = plan,
                                               .self = WorkerId(w),
                                               .metrics_count = kMetricsCount,
                                               .kind = PoolKindOf(input)}));
    // In its modules.
    for (const StagePlan& stage : plan.stages) mine.statistics += stage.buffer_bytes;
    // What is private is on the heap.
    for (const OwnBlock& own : StateBlocks(plan, WorkerId(w), moments)) {
      if (own.access == Access::kPrivate) mine.rounding += RoundingOf(own.bytes, huge_page);
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
  FitBudget& host = budgets[static_cast<size_t>(MemoryPlace::kHost)];
  if (!given.host.has_value()) host = FindHostMemory("/");
  return budgets;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenData(const Config& config) {
  const bool tokens = config.model.type == ModelConfig::Type::kGpt;
  DatasetOptions options;
  options.type = config.data.type;
  options.path = config.data.path;
  options.sequence = config.model.gpt.seq;
  if (tokens) options.vocabulary = config.model.gpt.vocab;
  options.random_input = config.data.input;
  options.random_kind = tokens ? SampleShape::Kind::kTokens : SampleShape::Kind::kImage;
  options.random_classes = config.data.classes;
  options.random_samples = config.data.samples;
  options.seed = config.seed;
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> data, OpenDataset(options));
  RZ_RETURN_IF_ERROR(CheckModelFitsData(config, data->shape()));
  return data;
}

}  // namespace

absl::StatusOr<RunInput> OpenRun(Config config, int hosts) {
  RunInput input{.config = std::move(config), .hosts = hosts};
  RZ_ASSIGN_OR_RETURN(input.data, OpenData(input.config));
  RZ_ASSIGN_OR_RETURN(input.length, MeasureRun(input.config, input.data->train().size(),
                                               input.data->test().size()));
  if (input.config.curve_ends_with_run) {
    EndCurve(input.length.iterations, input.config.optimizer.curve);
  }
  return input;
}

BatchesOptions BatchesOf(const RunInput& input) {
  return {.seed = input.config.seed,
          .micro_batch = input.config.batch.micro_batch,
          .train_batch = input.config.batch.train_batch,
          .iterations_per_epoch = input.length.iterations_per_epoch,
          .evaluation_batch = input.config.evaluation.batch_size,
          .test_samples = input.length.test_samples};
}

int64_t TokensPerSample(const Config& config) {
  return config.model.type == ModelConfig::Type::kGpt ? config.model.gpt.seq : 0;
}

absl::Status WriteProfile(const SavedProfile& saved) {
  Json json = saved.profile;
  json["format"] = kProfileFormat;
  json["frozen"] = saved.frozen;
  return WriteWholeFile(saved.path, json.dump(2) + "\n");
}

absl::StatusOr<SavedProfile> ReadProfile(const std::string& path) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  absl::StatusOr<SavedProfile> saved = ParseProfile(text);
  if (!saved.ok()) return Annotate(saved.status(), path);
  saved->path = path;
  return saved;
}

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

PoolKind PoolKindOf(const RunInput& input) {
  using Transport = CyclicConfig::Transport;
  switch (input.config.cyclic.transport) {
    case Transport::kLocal: return PoolKind::kHandles;
    case Transport::kShm: return PoolKind::kShared;
    case Transport::kUcx:
    case Transport::kNccl: return PoolKind::kReceived;
    case Transport::kAuto: break;
  }
  return input.hosts == 1 ? PoolKind::kShared : PoolKind::kReceived;
}

absl::StatusOr<PlannedRun> PlanRun(const RunInput& input) {
  const Config& config = input.config;
  absl::StatusOr<ConfiguredModel> made = MakeConfiguredModel(config.model, input.data->shape());
  if (!made.ok()) return PlanError(config, made.status());
  PlannedRun run{.layers = std::move(made->layers), .model = std::move(made->description)};
  const std::vector<LayerDescription> counted = run.model.layers;
  PlanRequest request = PlanRequestOf(config);
  request.epoch_samples = input.length.epoch_samples;
  request.iterations = input.length.iterations;
  request.evaluation = input.length.evaluation;
  request.proof = input.proof;
  if (input.stage_per_layer) {
    request.stages = static_cast<int>(counted.size());
    request.boundaries.resize(counted.size());
    std::iota(request.boundaries.begin(), request.boundaries.end(), 0);
  } else {
    if (!config.cyclic.profile.empty()) RZ_RETURN_IF_ERROR(TakeFrozenCosts(config, run.model));
    request.one_host = PoolKindOf(input) != PoolKind::kReceived;
  }
  absl::StatusOr<PlannedModel> planned = PlanModel(run.model, request);
  if (!planned.ok()) return PlanError(config, planned.status());
  run.planned = *std::move(planned);
  run.sample_flops = FlopsOf(counted, run.planned.plan);
  return run;
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
    // A gradient takes as much as a sum in the computing type would.
    const Precision gradients{.sums = precision.compute};
    options.gradient_bytes.push_back(StageLayout::Make(layout.parameters, {}, gradients).sum_bytes);
  }
  return ForecastMemory(run.planned.plan, options);
}

absl::StatusOr<RunFit> CertifyRun(const RunInput& run_input, const PlannedRun& run, Parent parent) {
  const Config& config = run_input.config;
  // Found before this process takes memory itself.
  RunFit fit{.budgets = FindBudgets(config)};
  FitInput input;
  RZ_ASSIGN_OR_RETURN(input.states, ForecastRun(config, run));
  RZ_ASSIGN_OR_RETURN(input.extras, ExtrasOf(run_input, run.planned));
  const int workers = config.cyclic.workers;
  for (int w = 0; w < workers; ++w) input.hosts.push_back(w * run_input.hosts / workers);
  input.one_process = config.cyclic.transport == CyclicConfig::Transport::kLocal;
  fit.unit = PoolKindOf(run_input) == PoolKind::kReceived ? FitUnit::kWorker : FitUnit::kHost;
  // If not even memory without a pass fits, there may be no room to measure a pass.
  fit.certificate = Certify(input);
  if (!CheckFit(fit.certificate, fit.budgets).ok()) return fit;
  ReturnFreedMemory();  // what the proof took is free again, and not to be counted
  RZ_ASSIGN_OR_RETURN(const PassMemory pass, MeasureRunPass(run_input, run));
  input.pass = {.setup = pass.setup,
                .activations = pass.activations,
                .evaluation = pass.evaluation,
                .with_waiting_gradients = pass.with_waiting_gradients};
  // What the micro-batch took is still there, and is not the process' own.
  const int64_t passed = std::max({pass.setup, pass.with_waiting_gradients, pass.evaluation});
  const ProcessPages mine = PagesOfProcess("self");
  ProcessPages above;
  if (parent == Parent::kLauncher) above = PagesOfProcess(absl::StrCat(getppid()));
  input.process_bytes = std::max<int64_t>(0, mine.private_dirty - passed);
  input.process_once_bytes = above.pss + mine.pss - mine.private_dirty;
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
