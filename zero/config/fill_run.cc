// Length, optimizer, rate curve and batch: what only a run needs.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/config/fill.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

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

ValueType TypeOf(absl::string_view name) {
  if (absl::StrContains(name, "bf")) return ValueType::kBf16;
  return absl::StrContains(name, "16") ? ValueType::kFp16 : ValueType::kFp32;
}

absl::Status FillLossScale(const ResolvedKeys& keys, LossScaleOptions& scale) {
  scale.initial = keys.Number("fp16.loss_scale");
  scale.dynamic = scale.initial == 0;
  if (!scale.dynamic) return absl::OkStatus();
  constexpr absl::string_view kPower = "fp16.initial_scale_power";
  const int64_t power = keys.Integer(kPower);
  if (power < -126 || power > 127) {
    return keys.Error(kPower, absl::StrCat("wanted -126 to 127, as a float has, found ", power));
  }
  scale.initial = std::ldexp(1.0, static_cast<int>(power));
  scale.window = Int(keys, "fp16.loss_scale_window");
  scale.minimum = keys.Number("fp16.min_loss_scale");
  if (Int(keys, "zero_optimization.stage") > 0) {
    scale.hysteresis = Int(keys, "fp16.hysteresis");
    scale.consecutive_hysteresis = keys.Bool("fp16.consecutive_hysteresis");
  } else {
    scale.hysteresis = 1;
    scale.at_minimum = LossScaleOptions::AtMinimum::kStays;
  }
  return absl::OkStatus();
}

absl::Status FillPrecision(const ResolvedKeys& keys, Precision& precision) {
  const auto is_on = [&](absl::string_view path) { return keys.Has(path) && keys.Bool(path); };
  precision.skip_overflows = SkipsOverflows(keys);
  if (is_on("bf16.enabled")) precision.compute = ValueType::kBf16;
  if (is_on("fp16.enabled")) {
    precision.compute = ValueType::kFp16;
    RZ_RETURN_IF_ERROR(FillLossScale(keys, precision.loss_scale));
  }
  constexpr absl::string_view kParameters = "cyclic.wire.parameters";
  if (keys.Has(kParameters)) precision.parameters = TypeOf(keys.String(kParameters));
  if (precision.wire() != precision.compute) {
    return keys.Error(kParameters,
                      absl::StrCat(ToString(precision.wire()), ", but the model computes in ",
                                   ToString(precision.compute),
                                   ", with copies where they lie: the two must be the same"));
  }
  for (const absl::string_view path : {"data_types.grad_accum_dtype", "cyclic.wire.sums"}) {
    if (keys.Has(path)) precision.sums = TypeOf(keys.String(path));
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

// The curve is the matrices'; the rest has a share of it.
absl::Status FillMuon(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  constexpr char kMatrices[] = "optimizer.params.muon_lr", kRest[] = "optimizer.params.adam_lr",
                 kAll[] = "optimizer.params.lr";
  MuonOptions& muon = optimizer.muon;
  muon.momentum = keys.Number("optimizer.params.momentum");
  muon.weight_decay = keys.Number("optimizer.params.weight_decay");
  const double rest = keys.Number(keys.Given(kAll) && !keys.Given(kRest) ? kAll : kRest);
  if (keys.Has(kMatrices)) optimizer.learning_rate = keys.Number(kMatrices);
  if (optimizer.learning_rate == 0 && rest != 0) {
    return keys.Error(kAll, "must be above 0 for the matrices of Muon where adam_lr is");
  }
  muon.rest_factor = rest == 0 ? 0 : rest / optimizer.learning_rate;
  muon.rest.clear();
  for (const JsonValue& name : keys.Json("optimizer.params.adam_names").children) {
    muon.rest.push_back(name.text);
  }
  return absl::OkStatus();
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
  constexpr absl::string_view kForm = "optimizer.form";
  const bool paper = keys.Has(kForm) && keys.String(kForm) == "paper";
  const UpdateForm form = paper ? UpdateForm::kPaper : UpdateForm::kDeepSpeed;
  if (type == "Lamb") {
    optimizer.type = Type::kLamb;
    optimizer.lamb = {.beta1 = betas[0],
                      .beta2 = betas[1],
                      .epsilon = keys.Number("optimizer.params.eps"),
                      .weight_decay = decay,
                      .max_ratio = keys.Number("optimizer.params.max_coeff"),
                      .min_ratio = keys.Number("optimizer.params.min_coeff"),
                      .form = form};
    return absl::OkStatus();
  }
  if (type == "Lion") {
    optimizer.type = Type::kLion;
    optimizer.lion = {.beta1 = betas[0], .beta2 = betas[1], .weight_decay = decay, .form = form};
    return absl::OkStatus();
  }
  // As in DeepSpeed: "Adam" means AdamW unless adam_w_mode is false; "AdamW" ignores the flag.
  const bool in_gradient = type == "Adam" && !keys.Bool("optimizer.params.adam_w_mode");
  optimizer.type = type == "Muon" ? Type::kMuon : in_gradient ? Type::kAdam : Type::kAdamW;
  optimizer.adamw = {.beta1 = betas[0],
                     .beta2 = betas[1],
                     .epsilon = keys.Number("optimizer.params.eps"),
                     .weight_decay = decay};
  return type == "Muon" ? FillMuon(keys, optimizer) : absl::OkStatus();
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

RateCurve::Phases PhasesOf(const ResolvedKeys& keys) {
  RateCurve::Phases phases;
  phases.warmup_updates = keys.Integer("scheduler.params.warmup_num_steps");
  phases.min_ratio = keys.Number("scheduler.params.min_lr_ratio");
  phases.decay_updates.reset();
  if (keys.String("scheduler.type") == "Cosine") return phases;
  phases.decay_updates = keys.Integer("scheduler.params.decay_num_steps");
  const std::string& decay = keys.String("scheduler.params.decay_type");
  phases.decay = decay == "linear"   ? RateCurve::Phases::Decay::kLinear
                 : decay == "cosine" ? RateCurve::Phases::Decay::kCosine
                                     : RateCurve::Phases::Decay::kRoot;
  return phases;
}

// Phases that do not fit into the run, where its length is known here.
absl::Status CheckPhases(const ResolvedKeys& keys, const RateCurve::Phases& phases) {
  const int64_t needed = phases.warmup_updates + phases.decay_updates.value_or(1);
  if (phases.total_updates >= needed) return absl::OkStatus();
  return keys.Error(
      "scheduler.params.total_num_steps",
      absl::StrCat("is ", phases.total_updates, ", but warm-up and decay take ", needed));
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
  } else if (type == "Cosine" || type == "WarmupStableDecay") {
    curve.type = RateCurve::Type::kPhases;
    curve.phases = PhasesOf(keys);
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

absl::Status FillUpdate(const ResolvedKeys& keys, Config& config) {
  if (!keys.HasSection("optimizer")) return absl::OkStatus();  // that is said of all of them
  if (!keys.Has("optimizer.type")) {
    return keys.Error("optimizer.type",
                      absl::StrCat("missing; ", OneOf(FindKey("optimizer.type")->built)));
  }
  RZ_RETURN_IF_ERROR(FillOptimizer(keys, config.optimizer));
  RZ_RETURN_IF_ERROR(FillGroups(keys, config.optimizer));
  const absl::Status predictable = CheckPredictable(config.optimizer);
  if (config.cyclic.predict && !predictable.ok()) {
    return keys.Error("cyclic.predict", predictable.message());
  }
  return absl::OkStatus();
}

absl::Status FillRates(const ResolvedKeys& keys, Config& config) {
  FillRateCurve(keys, config.optimizer);
  constexpr absl::string_view kTotal = "scheduler.params.total_num_steps";
  config.curve_ends_with_run = keys.Has(kTotal) && IsAuto(keys.Json(kTotal));
  if (!keys.Has(kTotal) || config.curve_ends_with_run) return absl::OkStatus();
  EndCurve(keys.Integer(kTotal), config.optimizer.curve);
  if (config.optimizer.curve.type != RateCurve::Type::kPhases) return absl::OkStatus();
  return CheckPhases(keys, config.optimizer.curve.phases);
}

absl::Status FillStage(const ResolvedKeys& keys, Config& config) {
  config.zero_stage = Int(keys, "zero_optimization.stage");
  return absl::OkStatus();
}

absl::Status FillTypes(const ResolvedKeys& keys, Config& config) {
  return FillPrecision(keys, config.precision);
}

absl::Status FillMonitors(const ResolvedKeys& keys, Config& config) {
  config.tensorboard = MonitorOf(keys, "tensorboard");
  config.csv_monitor = MonitorOf(keys, "csv_monitor");
  return absl::OkStatus();
}

// A part of a run, and the sections (or keys at the top) that it reads.
struct RunPart {
  absl::string_view sections;
  absl::Status (*fill)(const ResolvedKeys&, Config&);
};

constexpr RunPart kRunParts[] = {
    {"iterations|epochs", FillLength},
    {"zero_optimization", FillStage},
    {"fp16|bf16|data_types|cyclic", FillTypes},
    {"optimizer", FillUpdate},
    {"scheduler", FillRates},
    {"tensorboard|csv_monitor", FillMonitors},
    {"train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|"
     "dataloader_drop_last|evaluation",
     FillBatch},
};

}  // namespace

std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused) {
  const ResolvedKeys& keys = config.keys;
  std::vector<absl::Status> wrong;
  const auto check = [&](const absl::Status& status) {
    if (!status.ok()) wrong.push_back(status);
  };
  for (const KeySpec& key : AllKeys()) {
    if (key.need != KeyNeed::kTraining || keys.HasSection(key.path)) continue;
    wrong.push_back(absl::InvalidArgumentError(
        absl::StrCat(keys.file(), ": ", key.path, ": missing section (", key.meaning, ")")));
  }
  for (const RunPart& part : kRunParts) {
    const bool readable = std::none_of(
        refused.begin(), refused.end(),
        [&](const std::string& section) { return !FindChoice(part.sections, section).empty(); });
    if (readable) check(part.fill(keys, config));
  }
  return wrong;
}

}  // namespace ringzero
