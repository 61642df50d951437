// From resolved keys to the typed configuration, and the checks that need more than one key.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "zero/config/keys.h"
#include "zero/config/steps.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {
namespace {

ValueType TypeOf(absl::string_view name) {
  if (absl::StrContains(name, "bf")) return ValueType::kBf16;
  return absl::StrContains(name, "16") ? ValueType::kFp16 : ValueType::kFp32;
}

// The place of `name` among the choices of a key.
int ChoiceOf(const std::string& name, const KeySpec& key) {
  const std::vector<std::string> choices = absl::StrSplit(AllChoices(key), '|');
  return static_cast<int>(std::find(choices.begin(), choices.end(), name) - choices.begin());
}

// An integer becomes the nearest int, where DeepSpeed takes any. Seconds become a duration. A choice
// becomes the enumerator of its place among the choices, a bool the first or the second one.
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
    out = static_cast<T>(is_bool ? static_cast<int>(value.boolean) : ChoiceOf(value.text, key));
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
struct Field {
  template <typename T>
  Field(absl::string_view key_name, T* member)
      : name(key_name),
        put([member](const JsonValue& value, const KeySpec& key) { Put(value, key, *member); }) {}

  absl::string_view name;
  std::function<void(const JsonValue&, const KeySpec&)> put;
};

// Members whose keys have no value stay as they are.
void Fill(const ResolvedKeys& keys, absl::string_view section,
          std::initializer_list<Field> fields) {
  for (const Field& field : fields) {
    const std::string path = Join(section, field.name);
    if (keys.Has(path) && !keys.MustBeSet(path)) field.put(keys.Json(path), *FindKey(path));
  }
}

absl::Status FillModel(ResolvedKeys& keys, ModelConfig& model) {
  Fill(keys, "model", {{"type", &model.type}, {"depth", &model.depth}});
  const bool resnet = model.type == ModelConfig::Type::kResNet;
  const bool imagenet = model.depth == 18 || model.depth == 34 || model.depth == 50;
  if (resnet && !imagenet && (model.depth - 2) % 6 != 0) {
    return keys.Error("model.depth", absl::StrCat("wanted 18, 34 or 50, or 6n + 2 (20, 32, 44, 56)"
                                                  ", found ",
                                                  model.depth));
  }
  if (resnet && !keys.Has("model.width")) {
    keys.Set("model.width", JsonValue::Integer(imagenet ? 64 : 16), Origin::kDerived);
  }
  Fill(keys, "model",
       {{"width", &model.width},
        {"channels", &model.channels},
        {"layers", &model.layers},
        {"dim", &model.dim},
        {"heads", &model.heads},
        {"vocab", &model.vocab},
        {"seq", &model.seq},
        {"tied", &model.tied},
        {"dropout", &model.dropout},
        {"hidden", &model.hidden}});
  if (model.type == ModelConfig::Type::kGpt && model.dim % model.heads != 0) {
    return keys.Error("model.heads",
                      absl::StrCat(model.heads, " heads do not divide model.dim ", model.dim));
  }
  return absl::OkStatus();
}

absl::Status FillData(const ResolvedKeys& keys, const ModelConfig& model, DataConfig& data) {
  Fill(keys, "data",
       {{"type", &data.type},
        {"path", &data.path},
        {"samples", &data.samples},
        {"input", &data.input},
        {"classes", &data.classes}});
  const bool is_gpt = model.type == ModelConfig::Type::kGpt;
  if (data.type == "random") {
    const size_t rank = data.input.size();
    if (rank != 3 && (rank != 1 || model.type == ModelConfig::Type::kResNet)) {
      return keys.Error("data.input", "wanted [channels, height, width], or [features] for an mlp");
    }
    return absl::OkStatus();
  }
  if (data.path.empty()) {
    return keys.Error("data.type", absl::StrCat(data.type, " needs data.path"));
  }
  if (is_gpt != (data.type == "text")) {
    return keys.Error(
        "data.type",
        absl::StrCat(data.type, " is not for model.type ", keys.String("model.type"),
                     ", which wants ", is_gpt ? "text" : "idx or cifar10", " (or random)"));
  }
  return absl::OkStatus();
}

absl::Status FillOverflows(const ResolvedKeys& keys, InjectConfig& inject) {
  constexpr char kKey[] = "cyclic.inject.overflows";
  std::vector<int64_t> numbers;
  Fill(keys, "", {{kKey, &numbers}});
  const auto small = [](int64_t n) { return n >= 0 && n <= std::numeric_limits<int>::max(); };
  if (numbers.size() % 3 != 0 || !std::all_of(numbers.begin(), numbers.end(), small)) {
    return keys.Error(kKey, "wanted three numbers from 0 for each: iteration, stage, micro-batch");
  }
  for (size_t i = 0; i < numbers.size(); i += 3) {
    inject.overflows.push_back({int(numbers[i]), int(numbers[i + 1]), int(numbers[i + 2])});
  }
  return absl::OkStatus();
}

absl::Status FillInject(const ResolvedKeys& keys, int workers, InjectConfig& inject) {
  using Action = InjectConfig::Action;
  using Point = InjectConfig::Point;
  constexpr char kAction[] = "cyclic.inject.action";
  Fill(keys, "cyclic.inject",
       {{"delay", &inject.delay}, {"update_slowness", &inject.update_slowness}});
  RZ_RETURN_IF_ERROR(FillOverflows(keys, inject));
  if (!keys.Has(kAction)) return absl::OkStatus();
  inject.action = static_cast<Action>(1 + ChoiceOf(keys.String(kAction), *FindKey(kAction)));
  Fill(keys, "cyclic.inject",
       {{"at", &inject.at},
        {"worker", &inject.worker},
        {"number", &inject.number},
        {"seed", &inject.seed}});
  const bool flip = inject.action == Action::kFlip;
  const bool computing = inject.action == Action::kSlow || inject.action == Action::kHang;
  if (inject.worker >= workers) return keys.Error("cyclic.inject.worker", "there is no such one");
  if ((flip && inject.at != Point::kMessage) || (computing && inject.at != Point::kLap)) {
    return keys.Error("cyclic.inject.at", "flip is for a message, slow and hang are for a lap");
  }
  return absl::OkStatus();
}

absl::Status FillCyclic(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  Fill(keys, "cyclic",
       {{"rule", &cyclic.rule},
        {"predict", &cyclic.predict},
        {"stages", &cyclic.stages},
        {"workers", &cyclic.workers},  // absent where the batch asks for more than there may be
        {"transport", &cyclic.transport},
        {"window", &cyclic.window},
        {"pending", &cyclic.pending},
        {"stagger", &cyclic.stagger},
        {"retain", &cyclic.retain},
        {"exchange", &cyclic.exchange},
        {"track_activations", &cyclic.track_activations},
        {"flight_recorder", &cyclic.flight_recorder},
        {"on_nonfinite", &cyclic.on_nonfinite},
        {"balance", &cyclic.balance},
        {"profile", &cyclic.profile},
        {"threads", &cyclic.threads},
        {"products_first", &cyclic.products_first},
        {"wait_timeout", &cyclic.wait_timeout},
        {"peer_timeout", &cyclic.peer_timeout},
        {"checksums", &cyclic.checksums},
        {"memory_budget.host", &cyclic.memory_budget.host},
        {"memory_budget.device", &cyclic.memory_budget.device},
        {"memory_budget.disk", &cyclic.memory_budget.disk}});
  return FillInject(keys, cyclic.workers, cyclic.inject);
}

// What is of another rule than the one that is configured.
std::vector<absl::Status> CheckRule(const ResolvedKeys& keys, const CyclicConfig& cyclic) {
  const std::string idle = absl::StrCat("has no meaning with cyclic.rule ", ToString(cyclic.rule));
  const bool dp = cyclic.rule == Rule::kDp, v2 = cyclic.rule == Rule::kCdpV2;
  std::vector<absl::Status> wrong;
  if (dp && cyclic.stagger) wrong.push_back(keys.Error("cyclic.stagger", idle));
  if (dp && cyclic.predict)
    wrong.push_back(keys.Error("cyclic.predict", idle + ": nothing is stale"));
  if (!v2 && keys.Has("cyclic.slack")) wrong.push_back(keys.Error("cyclic.slack", idle));
  if (!v2 && keys.IsOn("cyclic.strict")) wrong.push_back(keys.Error("cyclic.strict", idle));
  return wrong;
}

absl::Status FillBoundaries(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  constexpr char kKey[] = "cyclic.boundaries";
  if (!keys.Has(kKey)) return absl::OkStatus();
  Fill(keys, "", {{kKey, &cyclic.boundaries}});
  const std::vector<int>& layers = cyclic.boundaries;
  const bool ascend =
      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  if (layers.empty() || layers[0] != 0 || !ascend) {
    return keys.Error(kKey, absl::StrCat("wanted ascending layers, the first one 0, found ",
                                         WriteJson(keys.Json(kKey))));
  }
  const int count = static_cast<int>(layers.size());
  if (cyclic.stages == 0 || cyclic.stages == count) return absl::OkStatus();
  return keys.Error(kKey, absl::StrCat(count, " stages, but cyclic.stages is ", cyclic.stages));
}

// Whether an iteration that overflows updates nothing: fp16, or bf16 unless it says otherwise.
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
    return keys.Error("cyclic.clipping",
                      "previous, but with fp16 or bf16.check_grad_overflow every update waits for "
                      "the norm of its own iteration anyway: wanted exact");
  }
  if (skips && cyclic.predict) {
    return keys.Error("cyclic.predict",
                      "takes every update for made, but with fp16 or bf16.check_grad_overflow "
                      "an overflow is skipped");
  }
  const bool exact = cyclic.clipping == Clipping::kExact;
  const bool needed = (exact || skips) && cyclic.rule == Rule::kCdpV2;
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
  Fill(keys, "cyclic", {{"slack", &cyclic.slack}});
  return absl::OkStatus();
}

absl::Status FillLength(const ResolvedKeys& keys, Config& config) {
  Fill(keys, "", {{"iterations", &config.iterations}, {"epochs", &config.epochs}});
  if (config.iterations.has_value() && config.epochs.has_value()) {
    return keys.Error("epochs", "iterations is given too: only one of them");
  }
  if (!config.iterations.has_value() && !config.epochs.has_value()) {
    return keys.Error("iterations", "missing; give iterations or epochs");
  }
  return absl::OkStatus();
}

absl::Status FillLossScale(const ResolvedKeys& keys, LossScaleOptions& scale) {
  constexpr absl::string_view kPower = "fp16.initial_scale_power";
  Fill(keys, "fp16", {{"loss_scale", &scale.initial}});
  scale.dynamic = scale.initial == 0;
  if (!scale.dynamic) return absl::OkStatus();
  const int64_t power = keys.Integer(kPower);
  if (power < -126 || power > 127) {
    return keys.Error(kPower, absl::StrCat("wanted -126 to 127, as a float has, found ", power));
  }
  scale.initial = std::ldexp(1.0, static_cast<int>(power));
  Fill(keys, "fp16", {{"loss_scale_window", &scale.window}, {"min_loss_scale", &scale.minimum}});
  if (keys.Integer("zero_optimization.stage") > 0) {
    Fill(keys, "fp16",
         {{"hysteresis", &scale.hysteresis},
          {"consecutive_hysteresis", &scale.consecutive_hysteresis}});
  } else {
    scale.hysteresis = 1;
    scale.at_minimum = LossScaleOptions::AtMinimum::kStays;
  }
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
  Fill(keys, "", {{kParameters, &precision.parameters}});
  if (precision.wire() != precision.compute) {
    return keys.Error(kParameters,
                      absl::StrCat(ToString(precision.wire()), ", but the model computes in ",
                                   ToString(precision.compute),
                                   ", with copies where they lie: the two must be the same"));
  }
  Fill(keys, "",
       {{"data_types.grad_accum_dtype", &precision.sums}, {"cyclic.wire.sums", &precision.sums}});
  return absl::OkStatus();
}

// The curve is the matrices'; the rest has a share of it.
absl::Status FillMuon(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  constexpr char kRest[] = "optimizer.params.adam_lr", kAll[] = "optimizer.params.lr";
  MuonOptions& muon = optimizer.muon;
  Fill(keys, "optimizer.params",
       {{"momentum", &muon.momentum},
        {"weight_decay", &muon.weight_decay},
        {"muon_lr", &optimizer.learning_rate},
        {"adam_names", &muon.rest}});
  const double rest = keys.Number(keys.Given(kAll) && !keys.Given(kRest) ? kAll : kRest);
  if (optimizer.learning_rate == 0 && rest != 0) {
    return keys.Error(kAll, "must be above 0 for the matrices of Muon where adam_lr is");
  }
  muon.rest_factor = rest == 0 ? 0 : rest / optimizer.learning_rate;
  return absl::OkStatus();
}

absl::Status FillOptimizer(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  using Type = OptimizerOptions::Type;
  const std::string& type = keys.String("optimizer.type");
  std::vector<double> betas(2);
  double decay = 0, epsilon = 0;
  UpdateForm form = UpdateForm::kDeepSpeed;
  bool decoupled = true;
  Fill(keys, "optimizer", {{"form", &form}, {"decay", &optimizer.decays}});
  Fill(keys, "optimizer.params",
       {{"lr", &optimizer.learning_rate},
        {"weight_decay", &decay},
        {"betas", &betas},
        {"eps", &epsilon},
        {"adam_w_mode", &decoupled}});
  if (type == "SGD") {
    SgdOptions& sgd = optimizer.sgd;
    optimizer.type = Type::kSgd;
    sgd.weight_decay = decay;
    Fill(keys, "optimizer.params",
         {{"momentum", &sgd.momentum}, {"dampening", &sgd.dampening}, {"nesterov", &sgd.nesterov}});
    const bool nesterov = sgd.nesterov == SgdOptions::Nesterov::kOn;
    if (!nesterov || (sgd.momentum > 0 && sgd.dampening == 0)) return absl::OkStatus();
    return keys.Error("optimizer.params.nesterov", "needs momentum above 0 and no dampening");
  }
  if (type == "Adagrad") {
    AdagradOptions& adagrad = optimizer.adagrad;
    optimizer.type = Type::kAdagrad;
    adagrad.weight_decay = decay;
    adagrad.epsilon = epsilon;
    Fill(keys, "optimizer.params",
         {{"lr_decay", &adagrad.rate_decay},
          {"initial_accumulator_value", &adagrad.initial_accumulator}});
    return absl::OkStatus();
  }
  if (type == "Lamb") {
    optimizer.type = Type::kLamb;
    optimizer.lamb = {.beta1 = betas[0],
                      .beta2 = betas[1],
                      .epsilon = epsilon,
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
  const bool in_gradient = type == "Adam" && !decoupled;
  optimizer.type = type == "Muon" ? Type::kMuon : in_gradient ? Type::kAdam : Type::kAdamW;
  optimizer.adamw = {
      .beta1 = betas[0], .beta2 = betas[1], .epsilon = epsilon, .weight_decay = decay};
  return type == "Muon" ? FillMuon(keys, optimizer) : absl::OkStatus();
}

constexpr char kGroups[] = "optimizer.groups";
constexpr absl::string_view kGroupNames = "params|lr_factor|weight_decay|betas";

// "wanted a number, found true".
absl::Status Wanted(absl::string_view what, const JsonValue& found) {
  return absl::InvalidArgumentError(absl::StrCat("wanted ", what, ", found ", Describe(found)));
}

absl::Status UnknownGroupKey(const std::string& name) {
  std::string nearest(NearestChoice(kGroupNames, name));
  if (name == "lr" || name == "learning_rate") nearest = "lr_factor";
  if (name == "name" || name == "names" || name == "pattern") nearest = "params";
  return absl::InvalidArgumentError(
      nearest.empty() ? absl::StrCat("unknown key; a group has ", OneOf(kGroupNames))
                      : absl::StrCat("unknown key; did you mean ", nearest, "?"));
}

absl::Status ReadGroupMember(const JsonValue& value, ParameterGroup& group) {
  if (value.key == "params") {
    if (value.kind != JsonValue::Kind::kString) return Wanted("a pattern of names", value);
    group.pattern = value.text;
  } else if (value.key == "betas") {
    const std::vector<JsonValue>& betas = value.children;
    const bool two = value.kind == JsonValue::Kind::kArray && betas.size() == 2 &&
                     betas[0].is_number() && betas[1].is_number();
    if (!two) return Wanted("a list of two numbers", value);
    group.betas = UpdateRate::Betas{betas[0].number, betas[1].number};
  } else if (value.key == "lr_factor" || value.key == "weight_decay") {
    if (!value.is_number()) return Wanted("a number", value);
    if (value.key == "lr_factor") group.rate_factor = value.number;
    if (value.key == "weight_decay") group.weight_decay = value.number;
  } else {
    return UnknownGroupKey(value.key);
  }
  return absl::OkStatus();
}

absl::StatusOr<ParameterGroup> ReadGroup(const JsonValue& value) {
  if (!value.is_object()) return Wanted("an object", value);
  ParameterGroup group;
  for (const JsonValue& member : value.children) {
    if (member.key.empty()) return absl::InvalidArgumentError("an empty key");
    RZ_RETURN_IF_ERROR(Annotate(ReadGroupMember(member, group), member.key));
  }
  if (!group.pattern.empty()) return group;
  return absl::InvalidArgumentError("params: missing (a pattern of names)");
}

// optimizer.groups: a list of objects, whose keys are looked at here.
absl::Status FillGroups(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  if (!keys.Has(kGroups)) return absl::OkStatus();
  const JsonValue& list = keys.Json(kGroups);
  if (list.kind != JsonValue::Kind::kArray) {
    return keys.Error(kGroups, Wanted("a list of objects", list).message());
  }
  for (size_t i = 0; i < list.children.size(); ++i) {
    absl::StatusOr<ParameterGroup> group = ReadGroup(list.children[i]);
    absl::Status status = group.status();
    if (status.ok()) status = CheckGroup(optimizer, *group);
    const std::string where = absl::StrCat(keys.PlaceOf(kGroups).text, ": ", kGroups, "[", i, "]");
    RZ_RETURN_IF_ERROR(Annotate(status, where));
    optimizer.groups.push_back(*std::move(group));
  }
  return absl::OkStatus();
}

absl::Status FillUpdate(const ResolvedKeys& keys, Config& config) {
  if (!keys.HasSection("optimizer")) return absl::OkStatus();  // that is said of all of them
  if (!keys.Has("optimizer.type")) {
    return keys.Error("optimizer.type",
                      absl::StrCat("missing; ", OneOf(FindKey("optimizer.type")->built)));
  }
  RZ_RETURN_IF_ERROR(FillOptimizer(keys, config.optimizer));
  if (const absl::Status status = CheckOptimizer(config.optimizer); !status.ok()) {
    return keys.Error("optimizer", status.message());
  }
  RZ_RETURN_IF_ERROR(FillGroups(keys, config.optimizer));
  const absl::Status predictable = CheckPredictable(config.optimizer);
  if (config.cyclic.predict && !predictable.ok()) {
    return keys.Error("cyclic.predict", predictable.message());
  }
  return absl::OkStatus();
}

void FillPhases(const ResolvedKeys& keys, RateCurve::Phases& phases) {
  constexpr char kDecay[] = "scheduler.params.decay_type";
  using Decay = RateCurve::Phases::Decay;
  phases.decay_updates.reset();
  Fill(keys, "scheduler.params",
       {{"warmup_num_steps", &phases.warmup_updates},
        {"min_lr_ratio", &phases.min_ratio},
        {"decay_num_steps", &phases.decay_updates}});
  if (!keys.Has(kDecay)) return;
  constexpr Decay kDecays[] = {Decay::kLinear, Decay::kCosine, Decay::kRoot};
  phases.decay = kDecays[ChoiceOf(keys.String(kDecay), *FindKey(kDecay))];
}

void FillRateCurve(const ResolvedKeys& keys, RateCurve& curve) {
  using Type = RateCurve::Type;
  constexpr char kType[] = "scheduler.type", kParams[] = "scheduler.params";
  if (!keys.Has(kType)) return;
  // The choices are in the order of the types; two are phases.
  const int type = 1 + ChoiceOf(keys.String(kType), *FindKey(kType));
  curve.type = static_cast<Type>(std::min(type, static_cast<int>(Type::kPhases)));
  RateCurve::Warmup& warmup = curve.warmup;
  RateCurve::OneCycle& cycle = curve.one_cycle;
  RateCurve::RangeTest& test = curve.range_test;
  if (curve.type == Type::kPhases) return FillPhases(keys, curve.phases);
  Fill(keys, kParams,
       {{"warmup_min_lr", &warmup.min_rate},
        {"warmup_max_lr", &warmup.max_rate},
        {"warmup_min_ratio", &warmup.min_ratio},
        {"cos_min_ratio", &warmup.cosine_min_ratio},
        {"warmup_num_steps", &warmup.updates},
        {"warmup_type", &warmup.ramp},
        {"cycle_min_lr", &cycle.min_rate},
        {"cycle_max_lr", &cycle.max_rate},
        {"cycle_first_step_size", &cycle.first_updates},
        {"cycle_second_step_size", &cycle.second_updates},
        {"cycle_first_stair_count", &cycle.first_stairs},
        {"cycle_second_stair_count", &cycle.second_stairs},
        {"decay_step_size", &cycle.decay_updates},
        {"decay_lr_rate", &cycle.rate_decay},
        {"cycle_momentum", &cycle.momentum},
        {"cycle_min_mom", &cycle.min_momentum},
        {"cycle_max_mom", &cycle.max_momentum},
        {"decay_mom_rate", &cycle.momentum_decay},
        {"lr_range_test_min_lr", &test.min_rate},
        {"lr_range_test_step_size", &test.updates},
        {"lr_range_test_step_rate", &test.growth},
        {"lr_range_test_staircase", &test.shape}});
}

absl::Status FillRates(const ResolvedKeys& keys, Config& config) {
  constexpr absl::string_view kTotal = "scheduler.params.total_num_steps";
  RateCurve& curve = config.optimizer.curve;
  FillRateCurve(keys, curve);
  config.curve_ends_with_run = keys.Has(kTotal) && IsAuto(keys.Json(kTotal));
  if (!keys.Has(kTotal) || config.curve_ends_with_run) return absl::OkStatus();
  EndCurve(keys.Integer(kTotal), curve);
  // Phases that do not fit into the run, where its length is known here.
  const RateCurve::Phases& phases = curve.phases;
  const int64_t needed = phases.warmup_updates + phases.decay_updates.value_or(1);
  if (curve.type != RateCurve::Type::kPhases || phases.total_updates >= needed) {
    return absl::OkStatus();
  }
  return keys.Error(
      kTotal, absl::StrCat("is ", phases.total_updates, ", but warm-up and decay take ", needed));
}

absl::Status FillBatch(const ResolvedKeys& keys, Config& config) {
  BatchTriple given;
  Fill(keys, "",
       {{kTrainBatchKey, &given.train_batch},
        {kMicroBatchKey, &given.micro_batch},
        {kLapsKey, &given.laps},
        {"dataloader_drop_last", &config.data.drop_last},
        {"evaluation.batch_size", &config.evaluation.batch_size}});
  const absl::StatusOr<BatchTriple> batch = CompleteBatch(given, config.cyclic.workers);
  if (!batch.ok()) {
    const char* key = keys.Has(kTrainBatchKey) ? kTrainBatchKey : kMicroBatchKey;
    return Annotate(batch.status(), keys.PlaceOf(key).text);
  }
  config.batch = *batch;
  return absl::OkStatus();
}

absl::Status FillMonitors(const ResolvedKeys& keys, Config& config) {
  for (const auto& [section, monitor] : {std::pair("tensorboard", &config.tensorboard),
                                         std::pair("csv_monitor", &config.csv_monitor)}) {
    if (!keys.IsOn(absl::StrCat(section, ".enabled"))) continue;
    MonitorConfig& made = monitor->emplace();
    Fill(keys, section, {{"output_path", &made.output_path}, {"job_name", &made.job_name}});
  }
  return absl::OkStatus();
}

absl::Status FillStage(const ResolvedKeys& keys, Config& config) {
  Fill(keys, "zero_optimization", {{"stage", &config.zero_stage}});
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
    {"fp16|bf16|data_types|cyclic", FillPrecision},
    {"optimizer", FillUpdate},
    {"scheduler", FillRates},
    {"tensorboard|csv_monitor", FillMonitors},
    {"train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|"
     "dataloader_drop_last|evaluation",
     FillBatch},
};

}  // namespace

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
  for (const absl::Status& status : CheckRule(keys, config.cyclic)) check(status);
  check(FillBoundaries(keys, config.cyclic));
  Fill(keys, "",
       {{"gradient_clipping", &config.optimizer.max_norm},
        {"seed", &config.seed},
        {"evaluation.samples", &config.evaluation.samples},
        {"evaluation.every", &config.evaluation.every},
        {"steps_per_print", &config.steps_per_print}});
  check(FillClipping(keys, config.optimizer.max_norm, SkipsOverflows(keys), config.cyclic));
  return wrong;
}

std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused) {
  const ResolvedKeys& keys = config.keys;
  std::vector<absl::Status> wrong;
  for (const KeySpec& key : AllKeys()) {
    if (key.need != KeyNeed::kTraining || keys.HasSection(key.path)) continue;
    wrong.push_back(absl::InvalidArgumentError(
        absl::StrCat(keys.file(), ": ", key.path, ": missing section (", key.meaning, ")")));
  }
  for (const RunPart& part : kRunParts) {
    const bool readable = std::none_of(
        refused.begin(), refused.end(),
        [&](const std::string& section) { return !FindChoice(part.sections, section).empty(); });
    const absl::Status status = readable ? part.fill(keys, config) : absl::OkStatus();
    if (!status.ok()) wrong.push_back(status);
  }
  return wrong;
}

}  // namespace ringzero
