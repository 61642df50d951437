// From configuration to layers and plan.
#include "integrations/cli/plan_run.h"

#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/cli/batches.h"
#include "integrations/torch/models/gpt.h"
#include "integrations/torch/models/mlp.h"
#include "integrations/torch/models/resnet.h"
#include "integrations/torch/ring_model.h"
#include "zero/optimizer_state.h"

namespace ringzero {
namespace {

absl::StatusOr<std::vector<LayerFactory>> BuildModel(const ModelConfig& model,
                                                     const SampleShape& shape) {
  switch (model.type) {
    case ModelConfig::Type::kResNet: {
      const ResNetOptions options{.depth = model.depth,
                                  .width = model.width,
                                  .channels = shape.input[0],
                                  .image_size = shape.input[1],
                                  .classes = shape.classes};
      RZ_RETURN_IF_ERROR(CheckResNet(options));
      return MakeResNet(options);
    }
    case ModelConfig::Type::kGpt: {
      const GptOptions options{.layers = model.layers,
                               .dim = model.dim,
                               .heads = model.heads,
                               .vocab = model.vocab,
                               .seq = model.seq,
                               .tied = model.tied,
                               .dropout = model.dropout};
      RZ_RETURN_IF_ERROR(CheckGpt(options));
      return MakeGpt(options);
    }
    case ModelConfig::Type::kMlp: {
      MlpOptions options;
      options.sizes.push_back(
          std::accumulate(shape.input.begin(), shape.input.end(), int64_t{1}, std::multiplies<>()));
      options.sizes.insert(options.sizes.end(), model.hidden.begin(), model.hidden.end());
      options.sizes.push_back(shape.classes);
      RZ_RETURN_IF_ERROR(CheckMlp(options));
      return MakeMlp(options);
    }
  }
  return absl::InternalError("model type without a builder");
}

PlanRequest RequestOf(const Config& config, const RunLength& length) {
  const CyclicConfig& cyclic = config.cyclic;
  return {.workers = cyclic.workers,
          .zero_stage = config.zero_stage,
          .laps = static_cast<int>(config.batch.laps),
          .rule = cyclic.rule,
          .slack = cyclic.slack,
          .stages = cyclic.boundaries.empty() ? cyclic.stages
                                              : static_cast<int>(cyclic.boundaries.size()),
          .boundaries = cyclic.boundaries,
          .balance = cyclic.balance == CyclicConfig::Balance::kBytes ? PlanRequest::Balance::kBytes
                                                                     : PlanRequest::Balance::kCost,
          .micro_batch = static_cast<int>(config.batch.micro_batch),
          .window = cyclic.window,
          .pending = cyclic.pending,
          .stagger = cyclic.stagger,
          .retain = cyclic.retain,
          .exchange = cyclic.exchange,
          .iterations = length.iterations,
          .evaluation = length.evaluation};
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

}  // namespace

absl::StatusOr<PlannedRun> PlanRun(const Config& config, const RunLength& length,
                                   const SampleShape& shape) {
  PlannedRun run;
  const absl::Status status = Guard([&]() -> absl::Status {
    RZ_ASSIGN_OR_RETURN(run.layers, BuildModel(config.model, shape));
    RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, {Batches::Example(shape)}));
    RZ_ASSIGN_OR_RETURN(run.planned, PlanModel(run.model, RequestOf(config, length)));
    return absl::OkStatus();
  });
  if (!status.ok()) return PlanError(config, status);
  return run;
}

absl::StatusOr<MemoryForecast> ForecastRun(const Config& config, const PlannedRun& run) {
  // A convolution's gradient is a tensor of its own.
  const bool linear = config.model.type != ModelConfig::Type::kResNet;
  return ForecastMemory(run.planned.plan,
                        {.moment_bytes = MomentBytes(config.optimizer, run.planned.layouts),
                         .gradients_join_sums = linear});
}

}  // namespace ringzero
