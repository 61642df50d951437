// From a configuration and its described model to a plan.
#include "integrations/cli/plan_run.h"

#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "integrations/cli/profile_file.h"
#include "integrations/torch/configured/configured_run.h"
#include "integrations/torch/machine_speed.h"
#include "zero/optimizer_state.h"

namespace ringzero {
namespace {

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
          .balance = cyclic.balance == CyclicConfig::Balance::kBytes ? PlanRequest::Balance::kBytes
                                                                     : PlanRequest::Balance::kCost,
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

}  // namespace

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

}  // namespace ringzero
