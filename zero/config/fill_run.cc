// Length, optimizer, rate curve and batch: what only a run needs.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/config/fill.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

int Int(const ResolvedKeys& keys, absl::string_view path) {
  return static_cast<int>(keys.Integer(path));
}

absl::Status FillLength(const ResolvedKeys& keys, Config& config) {
  if (keys.Has("iterations")) config.iterations = Int(keys, "iterations");
  if (keys.Has("epochs")) config.epochs = Int(keys, "epochs");
  if (config.iterations.has_value() && config.epochs.has_value()) {
    return keys.Error("epochs", "iterations is given too: only one of them");
  }
  if (!config.iterations.has_value() && !config.epochs.has_value()) {
    return keys.Error("iterations", "missing; give iterations or epochs");
  }
  return absl::OkStatus();
}

absl::Status FillSgd(const ResolvedKeys& keys, SgdOptions& sgd) {
  sgd.momentum = keys.Number("optimizer.params.momentum");
  sgd.dampening = keys.Number("optimizer.params.dampening");
  if (!keys.Bool("optimizer.params.nesterov")) return absl::OkStatus();
  sgd.nesterov = SgdOptions::Nesterov::kOn;
  if (sgd.momentum > 0 && sgd.dampening == 0) return absl::OkStatus();
  return keys.Error("optimizer.params.nesterov", "needs momentum above 0 and no dampening");
}

absl::Status FillOptimizer(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  using Type = OptimizerOptions::Type;
  optimizer.learning_rate = keys.Number("optimizer.params.lr");
  const double decay = keys.Number("optimizer.params.weight_decay");
  const std::string& type = keys.String("optimizer.type");
  if (type == "SGD") {
    optimizer.type = Type::kSgd;
    optimizer.sgd.weight_decay = decay;
    return FillSgd(keys, optimizer.sgd);
  }
  if (type == "Adagrad") {
    optimizer.type = Type::kAdagrad;
    optimizer.adagrad = {
        .rate_decay = keys.Number("optimizer.params.lr_decay"),
        .weight_decay = decay,
        .initial_accumulator = keys.Number("optimizer.params.initial_accumulator_value"),
        .epsilon = keys.Number("optimizer.params.eps")};
    return absl::OkStatus();
  }
  const std::vector<double> betas = keys.Numbers("optimizer.params.betas");
  if (type == "Lion") {
    optimizer.type = Type::kLion;
    optimizer.lion = {.beta1 = betas[0], .beta2 = betas[1], .weight_decay = decay};
    return absl::OkStatus();
  }
  // As in DeepSpeed: "Adam" means AdamW unless adam_w_mode is false; "AdamW" ignores the flag.
  const bool in_gradient = type == "Adam" && !keys.Bool("optimizer.params.adam_w_mode");
  optimizer.type = in_gradient ? Type::kAdam : Type::kAdamW;
  optimizer.adamw = {.beta1 = betas[0],
                     .beta2 = betas[1],
                     .epsilon = keys.Number("optimizer.params.eps"),
                     .weight_decay = decay};
  return absl::OkStatus();
}

RateCurve::Warmup WarmupOf(const ResolvedKeys& keys) {
  const auto number = [&](absl::string_view name, double& out) {
    const std::string path = absl::StrCat("scheduler.params.", name);
    if (keys.Has(path)) out = keys.Number(path);
    return keys.Has(path);
  };
  RateCurve::Warmup warmup;
  double max_rate = 0;
  number("warmup_min_lr", warmup.min_rate);
  if (number("warmup_max_lr", max_rate)) warmup.max_rate = max_rate;
  number("warmup_min_ratio", warmup.min_ratio);
  number("cos_min_ratio", warmup.cosine_min_ratio);
  warmup.updates = keys.Integer("scheduler.params.warmup_num_steps");
  constexpr absl::string_view kTotal = "scheduler.params.total_num_steps";
  if (keys.Has(kTotal) && !IsAuto(keys.Json(kTotal))) warmup.total_updates = keys.Integer(kTotal);
  const bool linear = keys.String("scheduler.params.warmup_type") == "linear";
  warmup.ramp = linear ? RateCurve::Ramp::kLinear : RateCurve::Ramp::kLog;
  return warmup;
}

RateCurve::OneCycle OneCycleOf(const ResolvedKeys& keys) {
  const auto path = [](absl::string_view name) { return absl::StrCat("scheduler.params.", name); };
  RateCurve::OneCycle cycle;
  cycle.min_rate = keys.Number(path("cycle_min_lr"));
  cycle.max_rate = keys.Number(path("cycle_max_lr"));
  cycle.first_updates = keys.Number(path("cycle_first_step_size"));
  if (keys.Has(path("cycle_second_step_size"))) {
    cycle.second_updates = keys.Number(path("cycle_second_step_size"));
  }
  cycle.first_stairs = keys.Integer(path("cycle_first_stair_count"));
  if (keys.Has(path("cycle_second_stair_count"))) {
    cycle.second_stairs = keys.Integer(path("cycle_second_stair_count"));
  }
  cycle.decay_updates = keys.Number(path("decay_step_size"));
  cycle.rate_decay = keys.Number(path("decay_lr_rate"));
  if (!keys.Bool(path("cycle_momentum"))) cycle.momentum = RateCurve::OneCycle::Momentum::kKept;
  cycle.min_momentum = keys.Number(path("cycle_min_mom"));
  cycle.max_momentum = keys.Number(path("cycle_max_mom"));
  cycle.momentum_decay = keys.Number(path("decay_mom_rate"));
  return cycle;
}

void FillRateCurve(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  if (!keys.Has("scheduler.type")) return;
  const std::string& type = keys.String("scheduler.type");
  RateCurve& curve = optimizer.curve;
  if (type == "OneCycle") {
    curve.type = RateCurve::Type::kOneCycle;
    curve.one_cycle = OneCycleOf(keys);
  } else if (type == "LRRangeTest") {
    curve.type = RateCurve::Type::kRangeTest;
    RateCurve::RangeTest& test = curve.range_test;
    test.min_rate = keys.Number("scheduler.params.lr_range_test_min_lr");
    test.updates = keys.Integer("scheduler.params.lr_range_test_step_size");
    test.growth = keys.Number("scheduler.params.lr_range_test_step_rate");
    if (keys.Bool("scheduler.params.lr_range_test_staircase")) {
      test.shape = RateCurve::RangeTest::Shape::kStairs;
    }
  } else {
    curve.type = type == "WarmupLR"        ? RateCurve::Type::kWarmup
                 : type == "WarmupDecayLR" ? RateCurve::Type::kWarmupDecay
                                           : RateCurve::Type::kWarmupCosine;
    curve.warmup = WarmupOf(keys);
  }
}

absl::Status FillBatch(const ResolvedKeys& keys, Config& config) {
  constexpr absl::string_view kTrain = "train_batch_size";
  constexpr absl::string_view kMicro = "train_micro_batch_size_per_gpu";
  const auto given = [&](absl::string_view path) {
    return keys.Has(path) ? keys.Integer(path) : 0;
  };
  const absl::StatusOr<BatchTriple> batch =
      CompleteBatch({.train_batch = given(kTrain),
                     .micro_batch = given(kMicro),
                     .laps = given("gradient_accumulation_steps")},
                    config.cyclic.workers);
  if (!batch.ok()) {
    return Annotate(batch.status(), keys.PlaceOf(keys.Has(kTrain) ? kTrain : kMicro).text);
  }
  config.batch = *batch;
  config.data.drop_last = keys.Bool("dataloader_drop_last");
  config.evaluation.batch_size = Int(keys, "evaluation.batch_size");
  return absl::OkStatus();
}

std::optional<MonitorConfig> MonitorOf(const ResolvedKeys& keys, absl::string_view section) {
  const auto key = [&](absl::string_view name) { return absl::StrCat(section, ".", name); };
  if (!keys.Bool(key("enabled"))) return std::nullopt;
  return MonitorConfig{.output_path = keys.String(key("output_path")),
                       .job_name = keys.String(key("job_name"))};
}

}  // namespace

absl::Status FillRun(Config& config) {
  ResolvedKeys& keys = config.keys;
  for (const KeySpec& key : AllKeys()) {
    if (key.need != KeyNeed::kTraining || keys.HasSection(key.path)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(keys.file(), ": ", key.path, ": missing section (", key.meaning, ")"));
  }
  if (!keys.Has("optimizer.type")) {
    return keys.Error("optimizer.type",
                      absl::StrCat("missing; ", OneOf(FindKey("optimizer.type")->built)));
  }
  config.zero_stage = Int(keys, "zero_optimization.stage");
  RZ_RETURN_IF_ERROR(FillLength(keys, config));
  RZ_RETURN_IF_ERROR(FillOptimizer(keys, config.optimizer));
  FillRateCurve(keys, config.optimizer);
  constexpr absl::string_view kTotal = "scheduler.params.total_num_steps";
  config.curve_ends_with_run = keys.Has(kTotal) && IsAuto(keys.Json(kTotal));
  config.tensorboard = MonitorOf(keys, "tensorboard");
  config.csv_monitor = MonitorOf(keys, "csv_monitor");
  return FillBatch(keys, config);
}

}  // namespace ringzero
