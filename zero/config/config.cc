// From text to a checked configuration, and on to a typed configuration for a run: the fields, and
// the checks of them that need more than one key.
#include "zero/config/config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/config/json_value.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

ValueType TypeOf(absl::string_view name) {
  if (absl::StrContains(name, "bf")) return ValueType::kBf16;
  return absl::StrContains(name, "16") ? ValueType::kFp16 : ValueType::kFp32;
}

int IndexOf(const std::string& name, absl::string_view choices) {
  const std::vector<std::string> names = absl::StrSplit(choices, '|');
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

// An integer becomes the nearest int: DeepSpeed takes any. Seconds become a duration. A choice
// becomes the enumerator of its place among the choices; a bool becomes the first or the second.
template <typename T>
void Put(const JsonValue& value, const KeySpec& key, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    out = value.boolean;
  } else if constexpr (std::is_same_v<T, int>) {
    using Limits = std::numeric_limits<int>;
    out = static_cast<int>(std::clamp<int64_t>(value.integer, Limits::min(), Limits::max()));
  } else if constexpr (std::is_integral_v<T>) {
    out = static_cast<T>(value.integer);
  } else if constexpr (std::is_same_v<T, double>) {
    out = value.number;
  } else if constexpr (std::is_same_v<T, std::string>) {
    out = value.text;
  } else if constexpr (std::is_same_v<T, ValueType>) {
    out = TypeOf(value.text);
  } else if constexpr (std::is_enum_v<T>) {
    const bool is_bool = key.type == KeyType::kBool;
    out = static_cast<T>(is_bool ? int{value.boolean} : IndexOf(value.text, AllChoices(key)));
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    out = T(static_cast<int64_t>(std::ceil(value.number * 1000)));
  } else if constexpr (std::is_same_v<T, std::chrono::microseconds>) {
    out = T(std::llround(value.number * 1e6));
  } else if constexpr (requires { out.emplace_back(); }) {  // a vector
    out.clear();
    for (const JsonValue& item : value.children) Put(item, key, out.emplace_back());
  } else {
    Put(value, key, out.emplace());  // an optional
  }
}

// The name of a key within a section, and what its value goes to.
struct Row {
  template <typename T>
  Row(absl::string_view key_name, T* member)
      : name(key_name),
        put([member](const JsonValue& value, const KeySpec& key) { Put(value, key, *member); }) {}

  absl::string_view name;
  std::function<void(const JsonValue&, const KeySpec&)> put;
};

// Members whose keys have no value stay as they are.
template <typename... Rows>
void Fill(const ResolvedKeys& keys, absl::string_view section, const Rows&... rows) {
  for (const Row& row : {rows...}) {
    const std::string path = Join(section, row.name);
    if (keys.Has(path) && !keys.MustBeSet(path)) row.put(keys.Json(path), *FindKey(path));
  }
}

absl::Status FillModel(ResolvedKeys& keys, ModelConfig& model) {
  Fill(keys, "model", Row("type", &model.type), Row("depth", &model.depth));
  const bool resnet = model.type == ModelConfig::Type::kResNet;
  const bool imagenet = model.depth == 18 || model.depth == 34 || model.depth == 50;
  if (resnet && !imagenet && (model.depth - 2) % 6 != 0) {
    return keys.Error("model.depth", "wanted 18, 34 or 50, or 6n + 2 (20, 32), found ",
                      model.depth);
  }
  if (resnet && !keys.Has("model.width")) {
    keys.Set("model.width", JsonValue::Integer(imagenet ? 64 : 16), Origin::kDerived);
  }
  GptOptions& gpt = model.gpt;
  Fill(keys, "model", Row("width", &model.width), Row("channels", &model.channels),
       Row("layers", &gpt.layers), Row("dim", &gpt.dim), Row("heads", &gpt.heads),
       Row("vocab", &gpt.vocab), Row("seq", &gpt.seq), Row("tied", &gpt.tied),
       Row("dropout", &gpt.dropout), Row("hidden", &model.hidden));
  if (model.type == ModelConfig::Type::kGpt && gpt.dim % gpt.heads != 0) {
    return keys.Error("model.heads", gpt.heads, " heads do not divide model.dim ", gpt.dim);
  }
  return absl::OkStatus();
}

absl::Status FillData(const ResolvedKeys& keys, const ModelConfig& model, DataConfig& data) {
  Fill(keys, "data", Row("type", &data.type), Row("path", &data.path),
       Row("samples", &data.samples), Row("input", &data.input), Row("classes", &data.classes));
  const bool is_gpt = model.type == ModelConfig::Type::kGpt;
  if (data.type == "random") {
    const size_t rank = data.input.size();
    if (rank != 3 && (rank != 1 || model.type == ModelConfig::Type::kResNet)) {
      return keys.Error("data.input", "wanted [channels, height, width], or [features] for an mlp");
    }
    return absl::OkStatus();
  }
  if (data.path.empty()) return keys.Error("data.type", data.type, " needs data.path");
  if (is_gpt != (data.type == "text")) {
    return keys.Error("data.type", data.type, " is not for model.type ", keys.String("model.type"),
                      ", which wants ", is_gpt ? "text" : "idx or cifar10", " (or random)");
  }
  return absl::OkStatus();
}

absl::Status FillInject(const ResolvedKeys& keys, int workers, InjectConfig& inject) {
  using Action = InjectConfig::Action;
  using Point = InjectConfig::Point;
  std::vector<int> overflows;
  Fill(keys, "cyclic.inject", Row("action", &inject.action), Row("at", &inject.at),
       Row("worker", &inject.worker), Row("number", &inject.number), Row("seed", &inject.seed),
       Row("delay", &inject.delay), Row("update_slowness", &inject.update_slowness),
       Row("overflows", &overflows));
  if (overflows.size() % 3 != 0) {
    return keys.Error("cyclic.inject.overflows",
                      "wanted three numbers for each: iteration, stage, micro-batch");
  }
  for (size_t i = 0; i < overflows.size(); i += 3) {
    inject.overflows.push_back({overflows[i], overflows[i + 1], overflows[i + 2]});
  }
  const bool flip = inject.action == Action::kFlip;
  const bool computing = inject.action == Action::kSlow || inject.action == Action::kHang;
  if (inject.worker >= workers) return keys.Error("cyclic.inject.worker", "there is no such one");
  if ((flip && inject.at != Point::kMessage) || (computing && inject.at != Point::kLap)) {
    return keys.Error("cyclic.inject.at", "flip is for a message, slow and hang are for a lap");
  }
  return absl::OkStatus();
}

constexpr char kFactor[] = "cyclic.predict.factor";
constexpr char kOffload[] = "zero_optimization.offload_optimizer";

absl::Status FillCyclic(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  Fill(keys, "cyclic", Row("rule", &cyclic.rule), Row("efficiency", &cyclic.efficiency),
       Row("links.latency", &cyclic.link_seconds), Row("links.bandwidth", &cyclic.link_bandwidth),
       Row("warmup_updates", &cyclic.warmup_updates), Row("stages", &cyclic.stages),
       Row("workers", &cyclic.workers), Row("transport", &cyclic.transport),
       Row("window", &cyclic.window), Row("pending", &cyclic.pending),
       Row("stagger", &cyclic.stagger), Row("retain", &cyclic.retain),
       Row("exchange", &cyclic.exchange), Row("track_activations", &cyclic.track_activations),
       Row("flight_recorder", &cyclic.flight_recorder), Row("on_nonfinite", &cyclic.on_nonfinite),
       Row("balance", &cyclic.balance), Row("profile", &cyclic.profile),
       Row("threads", &cyclic.threads), Row("products_first", &cyclic.products_first),
       Row("wait_timeout", &cyclic.wait_timeout), Row("peer_timeout", &cyclic.peer_timeout),
       Row("checksums", &cyclic.checksums), Row("memory_budget.host", &cyclic.memory_budget.host),
       Row("memory_budget.device", &cyclic.memory_budget.device),
       Row("memory_budget.disk", &cyclic.memory_budget.disk),
       Row("checkpoint.folder", &cyclic.checkpoint.folder),
       Row("checkpoint.every", &cyclic.checkpoint.every),
       Row("checkpoint.keep", &cyclic.checkpoint.keep),
       Row("checkpoint.at_end", &cyclic.checkpoint.at_end),
       Row("checkpoint.on_signal", &cyclic.checkpoint.on_signal),
       Row("checkpoint.grace", &cyclic.checkpoint.grace),
       Row("checkpoint.bandwidth", &cyclic.checkpoint.bandwidth));
  if (keys.Has("cyclic.checkpoint.every_minutes")) {
    const double seconds = 60 * keys.Number("cyclic.checkpoint.every_minutes");
    cyclic.checkpoint.interval = std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  }
  if (keys.String("cyclic.rule") == "auto") cyclic.rule.reset();
  if (keys.HasSection("cyclic.predict")) {
    cyclic.predict = !keys.Has(kFactor) || keys.Number(kFactor) > 0;
  }
  return FillInject(keys, cyclic.workers, cyclic.inject);
}

// Refuses keys that belong to another rule than the configured rule.
void CheckRule(const ResolvedKeys& keys, const CyclicConfig& cyclic,
               std::vector<absl::Status>& wrong) {
  if (!cyclic.rule.has_value()) return;
  const bool dp = cyclic.rule == Rule::kDp, v2 = cyclic.rule == Rule::kCdpV2;
  for (const auto& [path, idle] :
       {std::pair("cyclic.stagger", dp && cyclic.stagger),
        std::pair("cyclic.predict", dp && cyclic.predict == true),
        std::pair("cyclic.warmup_updates", dp && cyclic.warmup_updates > 0),
        std::pair("cyclic.slack", !v2 && keys.Has("cyclic.slack")),
        std::pair("cyclic.strict", !v2 && keys.IsOn("cyclic.strict")),
        std::pair("cyclic.efficiency", keys.Has("cyclic.efficiency"))}) {
    if (!idle) continue;
    wrong.push_back(keys.Error(path, "has no meaning with cyclic.rule ", ToString(*cyclic.rule)));
  }
}

absl::Status FillBoundaries(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  constexpr char kKey[] = "cyclic.boundaries";
  if (!keys.Has(kKey)) return absl::OkStatus();
  Fill(keys, "", Row(kKey, &cyclic.boundaries));
  const std::vector<int>& layers = cyclic.boundaries;
  const bool ascend =
      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  if (layers.empty() || layers[0] != 0 || !ascend) {
    return keys.Error(kKey, "wanted ascending layers, the first one 0, found ",
                      WriteJson(keys.Json(kKey)));
  }
  const int count = static_cast<int>(layers.size());
  if (cyclic.stages == 0 || cyclic.stages == count) return absl::OkStatus();
  return keys.Error(kKey, count, " stages, but cyclic.stages is ", cyclic.stages);
}

// Whether an iteration that overflows updates nothing: with fp16, or bf16 unless told otherwise.
bool SkipsOverflows(const ResolvedKeys& keys) {
  return keys.IsOn("fp16.enabled") ||
         (keys.IsOn("bf16.enabled") && keys.IsOn("bf16.check_grad_overflow"));
}

// What gradients are clipped by, and the form of cdp_v2 that this needs.
absl::Status FillClipping(const ResolvedKeys& keys, double max_norm, bool skips,
                          CyclicConfig& cyclic) {
  if (max_norm > 0) {
    RZ_ASSIGN_OR_RETURN(cyclic.clipping, ParseClipping(keys.String("cyclic.clipping")));
  }
  if (skips && cyclic.clipping == Clipping::kPrevious) {
    return keys.Error(
        "cyclic.clipping",
        "previous, but with fp16 or bf16.check_grad_overflow updates wait: wanted exact");
  }
  const bool exact = cyclic.clipping == Clipping::kExact;
  const bool needed = (exact || skips) && cyclic.rule.value_or(Rule::kCdpV2) == Rule::kCdpV2;
  cyclic.strict = keys.Has("cyclic.strict") ? keys.Bool("cyclic.strict") : needed;
  if (needed && !cyclic.strict) {
    return keys.Error(
        "cyclic.strict",
        skips ? "must be true with cyclic.rule cdp_v2 where overflows are skipped (fp16, "
                "bf16.check_grad_overflow)"
              : "must be true for exact clipping with cyclic.rule cdp_v2; set it, or "
                "cyclic.clipping per_stage or previous, or gradient_clipping 0");
  }
  cyclic.slack = cyclic.strict ? 0 : 1;
  Fill(keys, "cyclic", Row("slack", &cyclic.slack));
  return absl::OkStatus();
}

absl::Status FillLength(const ResolvedKeys& keys, Config& config) {
  Fill(keys, "", Row("iterations", &config.iterations), Row("epochs", &config.epochs));
  if (config.iterations.has_value() && config.epochs.has_value()) {
    return keys.Error("epochs", "iterations is given too: only one of them");
  }
  if (!config.iterations.has_value() && !config.epochs.has_value()) {
    return keys.Error("iterations", "missing; give iterations or epochs");
  }
  return absl::OkStatus();
}

// What a run needs, and what the program brings itself.
void CheckSections(const ResolvedKeys& keys, ModelFrom model, std::vector<absl::Status>& wrong) {
  const bool own = model == ModelFrom::kProgram;
  for (const KeySpec& key : AllKeys()) {
    if (!key.training) continue;
    const bool brought = own && (key.path == "model" || key.path == "data");
    const bool given = keys.HasSection(key.path);
    if (brought && given) {
      wrong.push_back(InvalidArgument(keys.file(), ": ", key.path,
                                      ": the program brings it: leave the section out"));
    } else if (!brought && !given) {
      wrong.push_back(
          InvalidArgument(keys.file(), ": ", key.path, ": missing section (", key.meaning, ")"));
    }
  }
}

absl::Status FillLossScale(const ResolvedKeys& keys, LossScaleOptions& scale) {
  constexpr absl::string_view kPower = "fp16.initial_scale_power";
  Fill(keys, "fp16", Row("loss_scale", &scale.initial), Row("loss_scale_window", &scale.window),
       Row("min_loss_scale", &scale.minimum), Row("hysteresis", &scale.hysteresis),
       Row("consecutive_hysteresis", &scale.consecutive_hysteresis));
  scale.dynamic = scale.initial == 0;
  if (!scale.dynamic) return absl::OkStatus();
  const int64_t power = keys.Integer(kPower);
  if (power < -126 || power > 127) {
    return keys.Error(kPower, "wanted -126 to 127, as a float has, found ", power);
  }
  scale.initial = std::ldexp(1.0, static_cast<int>(power));
  if (keys.Integer("zero_optimization.stage") > 0) return absl::OkStatus();
  scale.hysteresis = 1;
  scale.at_minimum = LossScaleOptions::AtMinimum::kStays;
  return absl::OkStatus();
}

absl::Status FillPrecision(const ResolvedKeys& keys, Config& config) {
  constexpr absl::string_view kParameters = "cyclic.wire.parameters";
  Precision& precision = config.precision;
  precision.skip_overflows = SkipsOverflows(keys);
  if (keys.IsOn("bf16.enabled")) precision.compute = ValueType::kBf16;
  if (keys.IsOn("fp16.enabled")) {
    precision.compute = ValueType::kFp16;
    RZ_RETURN_IF_ERROR(FillLossScale(keys, precision.loss_scale));
  }
  Fill(keys, "", Row(kParameters, &precision.parameters),
       Row("data_types.grad_accum_dtype", &precision.sums),
       Row("cyclic.wire.sums", &precision.sums));
  if (precision.wire() != precision.compute) {
    return keys.Error(kParameters, ToString(precision.wire()), ", but the model computes in ",
                      ToString(precision.compute),
                      ", with copies where they lie: the two must be the same");
  }
  return absl::OkStatus();
}

// The rate curve is that of the matrices; the other parameters have a share of it.
absl::Status FillMuon(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  constexpr char kRest[] = "optimizer.params.adam_lr", kAll[] = "optimizer.params.lr";
  const double rest = keys.Number(keys.Given(kAll) && !keys.Given(kRest) ? kAll : kRest);
  if (optimizer.learning_rate == 0 && rest != 0) {
    return keys.Error(kAll, "must be above 0 for the matrices of Muon where adam_lr is");
  }
  optimizer.muon.rest_factor = rest == 0 ? 0 : rest / optimizer.learning_rate;
  return absl::OkStatus();
}

// Fills in the numbers of every type: keys of types that are not configured have no values.
absl::Status FillOptimizer(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  using Type = OptimizerOptions::Type;
  constexpr Type kTypes[] = {Type::kSgd,     Type::kAdamW, Type::kAdam, Type::kLion,
                             Type::kAdagrad, Type::kLamb,  Type::kMuon};
  auto& sgd = optimizer.sgd;
  auto& adamw = optimizer.adamw;
  auto& lion = optimizer.lion;
  auto& adagrad = optimizer.adagrad;
  auto& lamb = optimizer.lamb;
  auto& muon = optimizer.muon;
  std::vector<double> betas = {0.9, 0.999};
  bool decoupled = true;
  Fill(keys, "optimizer", Row("form", &lion.form), Row("form", &lamb.form),
       Row("decay", &optimizer.decays));
  Fill(keys, "optimizer.params", Row("lr", &optimizer.learning_rate),
       Row("muon_lr", &optimizer.learning_rate), Row("betas", &betas),
       Row("adam_w_mode", &decoupled), Row("weight_decay", &sgd.weight_decay),
       Row("weight_decay", &adamw.weight_decay), Row("weight_decay", &lion.weight_decay),
       Row("weight_decay", &adagrad.weight_decay), Row("weight_decay", &lamb.weight_decay),
       Row("weight_decay", &muon.weight_decay), Row("eps", &adamw.epsilon),
       Row("eps", &adagrad.epsilon), Row("eps", &lamb.epsilon), Row("momentum", &sgd.momentum),
       Row("momentum", &muon.momentum), Row("dampening", &sgd.dampening),
       Row("nesterov", &sgd.nesterov), Row("lr_decay", &adagrad.rate_decay),
       Row("initial_accumulator_value", &adagrad.initial_accumulator),
       Row("max_coeff", &lamb.max_ratio), Row("min_coeff", &lamb.min_ratio),
       Row("adam_names", &muon.rest));
  adamw.beta1 = lion.beta1 = lamb.beta1 = betas[0];
  adamw.beta2 = lion.beta2 = lamb.beta2 = betas[1];
  optimizer.type = kTypes[IndexOf(keys.String("optimizer.type"), FindKey("optimizer.type")->built)];
  // As in DeepSpeed: "Adam" means AdamW unless adam_w_mode is false; "AdamW" ignores the flag.
  if (optimizer.type == Type::kAdam && decoupled) optimizer.type = Type::kAdamW;
  if (optimizer.type == Type::kMuon) return FillMuon(keys, optimizer);
  const bool nesterov = sgd.nesterov == SgdOptions::Nesterov::kOn;
  if (!nesterov || (sgd.momentum > 0 && sgd.dampening == 0)) return absl::OkStatus();
  return keys.Error("optimizer.params.nesterov", "needs momentum above 0 and no dampening");
}

constexpr char kGroups[] = "optimizer.groups";

absl::StatusOr<ParameterGroup> ReadGroup(const JsonValue& value) {
  if (!value.is_object()) return InvalidArgument("wanted an object, found ", Describe(value));
  ResolvedKeys keys("");
  for (const JsonValue& member : value.children) {
    const std::string path = Join(kGroups, member.key);
    const KeySpec* key = FindKey(path);
    if (key == nullptr) {
      return InvalidArgument("unknown key '", member.key,
                             "'; a group has params, lr_factor, weight_decay and betas");
    }
    RZ_ASSIGN_OR_RETURN(JsonValue read, Annotate(ConvertValue(member, *key), member.key));
    keys.Set(path, std::move(read), Origin::kFile);
  }
  ParameterGroup group;
  std::vector<double> betas;
  Fill(keys, kGroups, Row("params", &group.pattern), Row("lr_factor", &group.rate_factor),
       Row("weight_decay", &group.weight_decay), Row("betas", &betas));
  if (!betas.empty()) group.betas = {betas[0], betas[1]};
  if (!group.pattern.empty()) return group;
  return absl::InvalidArgumentError("params: missing (a pattern of names)");
}

absl::Status FillGroups(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  if (!keys.Has(kGroups)) return absl::OkStatus();
  for (const JsonValue& item : keys.Json(kGroups).children) {
    absl::StatusOr<ParameterGroup> group = ReadGroup(item);
    absl::Status status = group.status();
    if (status.ok()) status = CheckGroup(optimizer, *group);
    const std::string where = absl::StrCat(kGroups, "[", optimizer.groups.size(), "]");
    RZ_RETURN_IF_ERROR(Annotate(status, absl::StrCat(keys.PlaceOf(kGroups).text, ": ", where)));
    optimizer.groups.push_back(*std::move(group));
  }
  return absl::OkStatus();
}

absl::Status FillUpdate(const ResolvedKeys& keys, Config& config) {
  if (!keys.HasSection("optimizer")) return absl::OkStatus();  // FillRun reports it
  if (!keys.Has("optimizer.type")) {
    return keys.Error("optimizer.type", "missing; ", OneOf(FindKey("optimizer.type")->built));
  }
  RZ_RETURN_IF_ERROR(FillOptimizer(keys, config.optimizer));
  if (const absl::Status status = CheckOptimizer(config.optimizer); !status.ok()) {
    return keys.Error("optimizer", status.message());
  }
  RZ_RETURN_IF_ERROR(FillGroups(keys, config.optimizer));
  if (keys.Has(kFactor)) config.optimizer.prediction_factor = keys.Number(kFactor);
  if (config.cyclic.predict == true && PredictionFactor(config.optimizer) == 0) {
    return keys.Error(
        "cyclic.predict",
        "its factor is optimizer.params.momentum, found 0: wanted momentum above 0, or "
        "a factor of its own");
  }
  return absl::OkStatus();
}

void FillRateCurve(const ResolvedKeys& keys, RateCurve& curve) {
  using Type = RateCurve::Type;
  constexpr char kType[] = "scheduler.type";
  if (!keys.Has(kType)) return;
  // The choices are in the order of the types; two of them are kPhases.
  const int type = 1 + IndexOf(keys.String(kType), FindKey(kType)->built);
  curve.type = static_cast<Type>(std::min(type, static_cast<int>(Type::kPhases)));
  RateCurve::Warmup& warmup = curve.warmup;
  RateCurve::OneCycle& cycle = curve.one_cycle;
  RateCurve::RangeTest& test = curve.range_test;
  RateCurve::Phases& phases = curve.phases;
  phases.decay_updates.reset();
  Fill(keys, "scheduler.params", Row("warmup_min_lr", &warmup.min_rate),
       Row("warmup_max_lr", &warmup.max_rate), Row("warmup_min_ratio", &warmup.min_ratio),
       Row("cos_min_ratio", &warmup.cosine_min_ratio), Row("warmup_num_steps", &warmup.updates),
       Row("warmup_num_steps", &phases.warmup_updates), Row("warmup_type", &warmup.ramp),
       Row("min_lr_ratio", &phases.min_ratio), Row("decay_num_steps", &phases.decay_updates),
       Row("decay_type", &phases.decay), Row("cycle_min_lr", &cycle.min_rate),
       Row("cycle_max_lr", &cycle.max_rate), Row("cycle_first_step_size", &cycle.first_updates),
       Row("cycle_second_step_size", &cycle.second_updates),
       Row("cycle_first_stair_count", &cycle.first_stairs),
       Row("cycle_second_stair_count", &cycle.second_stairs),
       Row("decay_step_size", &cycle.decay_updates), Row("decay_lr_rate", &cycle.rate_decay),
       Row("cycle_momentum", &cycle.momentum), Row("cycle_min_mom", &cycle.min_momentum),
       Row("cycle_max_mom", &cycle.max_momentum), Row("decay_mom_rate", &cycle.momentum_decay),
       Row("lr_range_test_min_lr", &test.min_rate), Row("lr_range_test_step_size", &test.updates),
       Row("lr_range_test_step_rate", &test.growth), Row("lr_range_test_staircase", &test.shape));
}

absl::Status FillRates(const ResolvedKeys& keys, Config& config) {
  constexpr absl::string_view kTotal = "scheduler.params.total_num_steps";
  RateCurve& curve = config.optimizer.curve;
  FillRateCurve(keys, curve);
  config.curve_ends_with_run = keys.Has(kTotal) && IsAuto(keys.Json(kTotal));
  if (!keys.Has(kTotal) || config.curve_ends_with_run) return absl::OkStatus();
  EndCurve(keys.Integer(kTotal), curve);
  // Refuses phases that do not fit into the run, if the length of the run is known here.
  const RateCurve::Phases& phases = curve.phases;
  const int64_t needed = phases.warmup_updates + phases.decay_updates.value_or(1);
  if (curve.type != RateCurve::Type::kPhases || phases.total_updates >= needed) {
    return absl::OkStatus();
  }
  return keys.Error(kTotal, "is ", phases.total_updates, ", but warm-up and decay take ", needed);
}

absl::Status FillBatch(const ResolvedKeys& keys, Config& config) {
  BatchTriple& triple = config.batch;
  Fill(keys, "", Row(kTrainBatchKey, &triple.train_batch), Row(kMicroBatchKey, &triple.micro_batch),
       Row(kLapsKey, &triple.laps), Row("dataloader_drop_last", &config.data.drop_last),
       Row("evaluation.batch_size", &config.evaluation.batch_size));
  // The rules (rules.cc) have completed the triple. An error here: no batch size is given.
  return Annotate(CompleteBatch(triple, config.cyclic.workers).status(), keys.file());
}

void FillMonitor(const ResolvedKeys& keys, absl::string_view section,
                 std::optional<MonitorConfig>& monitor) {
  if (!keys.IsOn(Join(section, "enabled"))) return;
  MonitorConfig& made = monitor.emplace();
  Fill(keys, section, Row("output_path", &made.output_path), Row("job_name", &made.job_name));
}

// A part of a run, and the sections (or keys at the top) that it reads.
struct RunPart {
  absl::string_view sections;
  absl::Status (*fill)(const ResolvedKeys&, Config&);
};

constexpr RunPart kRunParts[] = {
    {"iterations|epochs", FillLength},
    {"fp16|bf16|data_types|cyclic", FillPrecision},
    {"optimizer", FillUpdate},
    {"scheduler", FillRates},
    {"train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|"
     "dataloader_drop_last|evaluation",
     FillBatch},
};

// Fills the fields of our own sections from config.keys: their values are right one by one, and
// none is "auto". Goes on after an error, and returns all errors.
std::vector<absl::Status> FillOurs(Config& config) {
  ResolvedKeys& keys = config.keys;
  std::vector<absl::Status> wrong;
  const auto check = [&](const absl::Status& status) {
    if (!status.ok()) wrong.push_back(status);
  };
  if (keys.Has("model.type")) check(FillModel(keys, config.model));
  if (keys.Has("model.type") && keys.Has("data.type")) {
    check(FillData(keys, config.model, config.data));
  }
  check(FillCyclic(keys, config.cyclic));
  CheckRule(keys, config.cyclic, wrong);
  check(FillBoundaries(keys, config.cyclic));
  Fill(keys, "", Row("gradient_clipping", &config.optimizer.max_norm), Row("seed", &config.seed),
       Row("evaluation.samples", &config.evaluation.samples),
       Row("evaluation.every", &config.evaluation.every),
       Row("steps_per_print", &config.steps_per_print),
       Row("zero_optimization.stage", &config.zero_stage));
  config.optimizer.max_norm = std::max(config.optimizer.max_norm, 0.0);
  Fill(keys, kOffload, Row("device", &config.offload.device),
       Row("nvme_path", &config.offload.nvme_path), Row("ratio", &config.offload.ratio));
  if (config.zero_stage == 3) {
    Fill(keys, "zero_optimization.offload_param", Row("device", &config.offload.parameter_device),
         Row("max_in_cpu", &config.offload.max_in_cpu));
  }
  if (!config.offload.streams() && config.offload.streams_parameters()) {
    Fill(keys, "", Row(kParameterPathKey, &config.offload.nvme_path));
  }
  Fill(keys, "aio", Row("block_size", &config.offload.io.block_bytes),
       Row("queue_depth", &config.offload.io.depth),
       Row("intra_op_parallelism", &config.offload.io.threads));
  IoEngineOptions& io = config.offload.io;
  io.depth = std::min(io.depth, 4096);
  io.block_bytes = std::min<int64_t>(io.block_bytes, 1 << 30);
  io.threads = std::min(io.threads, 64);
  Fill(keys, "cyclic.offload", Row("staging", &config.offload.staging_bytes),
       Row("stages", &config.offload.stages), Row("slots", &config.offload.slots),
       Row("require_hidden", &config.offload.require_hidden),
       Row("endurance", &config.offload.endurance), Row("bandwidth", &config.offload.bandwidth));
  FillMonitor(keys, "tensorboard", config.tensorboard);
  FillMonitor(keys, "csv_monitor", config.csv_monitor);
  check(FillClipping(keys, config.optimizer.max_norm, SkipsOverflows(keys), config.cyclic));
  return wrong;
}

// Fills the fields that a run needs, and returns all errors. Leaves out `refused`: sections (or
// keys at the top) with a value that no run takes.
std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused,
                                  ModelFrom model) {
  const ResolvedKeys& keys = config.keys;
  std::vector<absl::Status> wrong;
  CheckSections(keys, model, wrong);
  const bool open_end =
      model == ModelFrom::kProgram && !keys.Has("iterations") && !keys.Has("epochs");
  for (const RunPart& part : kRunParts) {
    if (open_end && part.fill == FillLength) continue;
    const bool readable = std::none_of(
        refused.begin(), refused.end(),
        [&](const std::string& section) { return !FindChoice(part.sections, section).empty(); });
    const absl::Status status = readable ? part.fill(keys, config) : absl::OkStatus();
    if (!status.ok()) wrong.push_back(status);
  }
  return wrong;
}

absl::Status FirstOf(absl::string_view line, size_t count) {
  const std::string more =
      count == 1 ? "" : absl::StrCat(" (and ", count - 1, " more: ringzero config lists them)");
  return InvalidArgument(line, more);
}

// How many updates the rate takes to its height.
int64_t WarmupOf(const RateCurve& curve) {
  using Type = RateCurve::Type;
  switch (curve.type) {
    case Type::kWarmup:
    case Type::kWarmupDecay:
    case Type::kWarmupCosine: return curve.warmup.updates;
    case Type::kOneCycle: return static_cast<int64_t>(curve.one_cycle.first_updates);
    case Type::kPhases: return curve.phases.warmup_updates;
    case Type::kConstant:
    case Type::kRangeTest: return 0;
  }
  return 0;
}

// For which optimizers predictions are chosen (decision 51).
bool Predicts(const OptimizerOptions& optimizer) {
  using Type = OptimizerOptions::Type;
  const bool heavy_ball =
      optimizer.sgd.momentum > 0 && optimizer.sgd.nesterov == SgdOptions::Nesterov::kOff;
  return optimizer.type == Type::kAdamW || optimizer.type == Type::kMuon ||
         (optimizer.type == Type::kSgd && heavy_ball);
}

// What a cyclic rule comes with, where the configuration does not say it.
void ChooseForRule(const Config& config, RunLength& length) {
  const CyclicConfig& cyclic = config.cyclic;
  if (cyclic.rule == Rule::kDp || !cyclic.exchange) return;
  const int64_t wanted = std::max<int64_t>(WarmupOf(config.optimizer.curve), 300);
  const int64_t most = int64_t{length.iterations} * 3 / 10;
  length.warmup_updates = static_cast<int>(
      std::min<int64_t>(length.iterations, cyclic.warmup_updates.value_or(std::min(wanted, most))));
  length.predict = cyclic.predict.value_or(Predicts(config.optimizer));
  const std::string why = cyclic.warmup_updates.has_value() ? "as configured"
                          : wanted > most                   ? "30 % of the run"
                          : wanted > 300                    ? "the rate's warm-up"
                                                            : "the least that is chosen";
  const std::string predicts =
      length.predict ? absl::StrFormat("predicted, factor %g", PredictionFactor(config.optimizer))
                     : "read as it is";
  length.rule_choice =
      absl::StrFormat("the first %d of %d updates are of dp (%s); what is stale is %s (%s)",
                      length.warmup_updates, length.iterations, why, predicts,
                      cyclic.predict.has_value() ? "as configured" : "chosen by the optimizer");
}

absl::StatusOr<RuleQuestion> QuestionOf(const Config& config) {
  absl::StatusOr<std::vector<StudiedRule>> studied = ReadStudiedRules(config.cyclic.efficiency);
  if (!studied.ok()) return config.Error("cyclic.efficiency", studied.status().message());
  const ResolvedKeys& keys = config.keys;
  // What the file calls Adam is most often AdamW (FillOptimizer).
  const bool adamw = config.optimizer.type == OptimizerOptions::Type::kAdamW;
  return RuleQuestion{.family = keys.Has("model.type") ? keys.String("model.type") : "custom",
                      .optimizer = adamw ? "AdamW" : keys.String("optimizer.type"),
                      .batch = config.batch.train_batch,
                      .studied = *std::move(studied),
                      .links = LinkOf(config.cyclic)};
}

}  // namespace

CheckedConfig CheckConfig(absl::string_view text, const ConfigSource& source) {
  CheckedConfig checked;
  Findings& findings = checked.findings;
  checked.config.keys = ResolveKeys(text, source, findings);
  if (findings.First(Finding::Kind::kError) != nullptr) return checked;
  for (const absl::Status& status : FillOurs(checked.config)) {
    findings.Add(Finding::Kind::kError, {}, "", status.message());
  }
  return checked;
}

std::vector<std::string> FillForTraining(CheckedConfig& checked, ModelFrom model) {
  std::vector<std::string> refused;
  std::set<std::string> sections;
  for (const Finding& finding : checked.findings.all()) {
    if (!RefusedByTraining(finding.kind)) continue;
    refused.push_back(finding.line);
    sections.insert(finding.path.substr(0, finding.path.find('.')));
  }
  if (checked.findings.First(Finding::Kind::kError) != nullptr) return refused;
  for (const absl::Status& status : FillRun(checked.config, sections, model)) {
    refused.emplace_back(status.message());
  }
  return refused;
}

absl::StatusOr<Config> ParseConfig(absl::string_view text, const ConfigSource& source,
                                   ModelFrom model) {
  CheckedConfig checked = CheckConfig(text, source);
  const Findings& findings = checked.findings;
  if (const Finding* error = findings.First(Finding::Kind::kError); error != nullptr) {
    return FirstOf(error->line, static_cast<size_t>(findings.Count(Finding::Kind::kError)));
  }
  const std::vector<std::string> refused = FillForTraining(checked, model);
  if (!refused.empty()) return FirstOf(refused[0], refused.size());
  for (const Finding& finding : findings.all()) {
    if (!RefusedByTraining(finding.kind)) checked.config.notes.push_back(finding.line);
  }
  return std::move(checked.config);
}

LinkTicks LinkOf(const CyclicConfig& cyclic) {
  const auto& [latency, bandwidth] = std::pair(cyclic.link_seconds, cyclic.link_bandwidth);
  const bool nccl = cyclic.transport == TransportChoice::kNccl;
  const double milliseconds = 1e3 * latency.value_or(nccl ? 20e-6 : 50e-6);
  const double rate = bandwidth.value_or(nccl ? 12 : 3);
  const auto source = [](const auto& given) { return given ? "cyclic.links" : "assumed"; };
  return {.latency = std::llround(1e6 * milliseconds),
          .per_byte = 1 / rate,
          .text = absl::StrFormat("links between hosts of %g ms (%s) and %g GB/s (%s)",
                                  milliseconds, source(latency), rate, source(bandwidth))};
}

absl::StatusOr<RunLength> MeasureRun(const Config& config, int64_t train_samples,
                                     int64_t test_samples) {
  RunLength length{.notes = config.notes};
  const int64_t batch = config.batch.train_batch;
  length.iterations_per_epoch = train_samples / batch;
  if (length.iterations_per_epoch == 0) {
    return config.Error("train_batch_size", batch, " samples per update, but the data has only ",
                        train_samples);
  }
  const int64_t rest = train_samples % batch;
  if (rest != 0 && !config.data.drop_last) {
    ++length.iterations_per_epoch;
    length.epoch_samples = train_samples;
  }
  const int64_t iterations = config.iterations.has_value()
                                 ? *config.iterations
                                 : *config.epochs * length.iterations_per_epoch;
  if (iterations > std::numeric_limits<int>::max() - 1) {
    return config.Error(config.epochs.has_value() ? "epochs" : "iterations", iterations,
                        " iterations are too many");
  }
  length.iterations = static_cast<int>(iterations);
  if (rest != 0 && iterations >= length.iterations_per_epoch) {
    length.notes.push_back(
        config.data.drop_last
            ? absl::StrCat("the last ", rest, " of ", train_samples,
                           " samples of each epoch's order are left out: batches have ", batch)
            : absl::StrCat("the last batch of each epoch has ", rest, " samples, the others ",
                           batch));
  }
  ChooseForRule(config, length);
  if (!config.cyclic.rule.has_value()) {
    RZ_ASSIGN_OR_RETURN(length.question, QuestionOf(config));
  }
  length.test_samples = test_samples;
  if (config.evaluation.samples != 0) {
    length.test_samples = std::min(length.test_samples, config.evaluation.samples);
  }
  const int64_t per_lap = int64_t{config.evaluation.batch_size} * config.cyclic.workers;
  const int every = config.evaluation.every.value_or(length.iterations);
  if (!config.cyclic.exchange) return length;
  if (length.test_samples == 0) {
    if (every > 0) length.notes.push_back("the data has no held-out samples: no evaluation");
    return length;
  }
  length.evaluation.every = std::min(every, length.iterations);
  // Also where none is planned: one may be asked for.
  length.evaluation.laps = static_cast<int>((length.test_samples + per_lap - 1) / per_lap);
  return length;
}

PlanRequest PlanRequestOf(const Config& config, const RunLength& length) {
  const CyclicConfig& cyclic = config.cyclic;
  const auto& saves = cyclic.checkpoint;
  CheckpointPlan checkpoint;
  if (!saves.folder.empty() && cyclic.exchange) {
    checkpoint = {.every = saves.every, .at_end = saves.at_end, .on_request = saves.on_request()};
  }
  return {.workers = cyclic.workers,
          .zero_stage = config.zero_stage,
          .laps = static_cast<int>(config.batch.laps),
          .rule = cyclic.rule.value_or(Rule::kCdpV2),
          .slack = cyclic.slack,
          .warmup_updates = length.warmup_updates,
          .predict = length.predict,
          .strict = cyclic.strict,
          .clipping = cyclic.clipping,
          .stages = cyclic.boundaries.empty() ? cyclic.stages
                                              : static_cast<int>(cyclic.boundaries.size()),
          .boundaries = cyclic.boundaries,
          .balance = cyclic.balance,
          .micro_batch = static_cast<int>(config.batch.micro_batch),
          .epoch_samples = length.epoch_samples,
          .window = cyclic.window,
          .lends = !cyclic.checksums && cyclic.inject.action != InjectConfig::Action::kFlip,
          .pending = cyclic.pending,
          .stagger = cyclic.stagger,
          .retain = cyclic.retain,
          .exchange = cyclic.exchange,
          .iterations = length.iterations,
          .evaluation = length.evaluation,
          .checkpoint = checkpoint,
          .requests = checkpoint.on_request,
          .streamed_share = config.offload.streams() && cyclic.exchange ? config.offload.ratio : 0,
          .streamed_stages = config.offload.stages,
          .staging_bytes = config.offload.staging_bytes,
          .parameters_in_memory = config.offload.streams_parameters() && cyclic.exchange
                                      ? std::optional(config.offload.max_in_cpu)
                                      : std::nullopt,
          .resident_slots = config.offload.slots,
          .optimizer = config.optimizer,
          .precision = config.precision,
          .question = length.question};
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& file) {
  return ReadWholeFile(file, kMaxConfigBytes + 1);  // one more than the reader takes: it says so
}

absl::StatusOr<Config> LoadConfig(const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  return ParseConfig(text, source);
}

}  // namespace ringzero
