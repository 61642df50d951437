// Checks ranges as torch.optim does, finds a parameter's group by fnmatch, and tells options line
// by line.
#include "zero/optimizer/optimizer_options.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status OutOfRange(const char* key, const char* wanted, double found) {
  return InvalidArgument("optimizer.params.", key, " must be ", wanted, ", found ", found);
}

absl::Status CheckNotNegative(const char* key, double value) {
  return value >= 0 ? absl::OkStatus() : OutOfRange(key, "at least 0", value);
}

absl::Status CheckBetas(double beta1, double beta2) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_beta(beta1)) return OutOfRange("betas[0]", "in [0, 1)", beta1);
  if (!is_beta(beta2)) return OutOfRange("betas[1]", "in [0, 1)", beta2);
  return absl::OkStatus();
}

absl::Status CheckSgd(const SgdOptions& sgd) {
  RZ_RETURN_IF_ERROR(CheckNotNegative("momentum", sgd.momentum));
  RZ_RETURN_IF_ERROR(CheckNotNegative("weight_decay", sgd.weight_decay));
  if (sgd.nesterov == SgdOptions::Nesterov::kOn && (sgd.momentum <= 0 || sgd.dampening != 0)) {
    return absl::InvalidArgumentError(
        "optimizer.params.nesterov needs a momentum above 0 and a dampening of 0");
  }
  return absl::OkStatus();
}

absl::Status CheckAdam(const AdamWOptions& adam) {
  RZ_RETURN_IF_ERROR(CheckBetas(adam.beta1, adam.beta2));
  RZ_RETURN_IF_ERROR(CheckNotNegative("eps", adam.epsilon));
  return CheckNotNegative("weight_decay", adam.weight_decay);
}

absl::Status CheckLamb(const LambOptions& lamb) {
  RZ_RETURN_IF_ERROR(CheckBetas(lamb.beta1, lamb.beta2));
  RZ_RETURN_IF_ERROR(CheckNotNegative("eps", lamb.epsilon));
  RZ_RETURN_IF_ERROR(CheckNotNegative("weight_decay", lamb.weight_decay));
  RZ_RETURN_IF_ERROR(CheckNotNegative("min_coeff", lamb.min_ratio));
  if (lamb.max_ratio >= lamb.min_ratio) return absl::OkStatus();
  return OutOfRange("max_coeff", absl::StrCat("at least min_coeff, ", lamb.min_ratio).c_str(),
                    lamb.max_ratio);
}

absl::Status CheckMuon(const MuonOptions& muon) {
  if (!(muon.momentum >= 0 && muon.momentum < 1)) {
    return OutOfRange("momentum", "in [0, 1)", muon.momentum);
  }
  RZ_RETURN_IF_ERROR(CheckNotNegative("adam_lr", muon.rest_factor));
  return CheckNotNegative("weight_decay", muon.weight_decay);
}

bool Matches(const ParameterGroup& group, const ParameterSpec& parameter) {
  return fnmatch(group.pattern.c_str(), parameter.name.c_str(), 0) == 0;
}

void SetDecay(OptimizerOptions& options, double decay) {
  options.sgd.weight_decay = options.adamw.weight_decay = options.lion.weight_decay =
      options.adagrad.weight_decay = options.lamb.weight_decay = options.muon.weight_decay = decay;
}

void Apply(const ParameterGroup& group, OptimizerOptions& options) {
  options.rate_factor *= group.rate_factor;
  if (group.weight_decay.has_value()) SetDecay(options, *group.weight_decay);
  if (!group.betas.has_value()) return;
  options.adamw.beta1 = options.lion.beta1 = options.lamb.beta1 = group.betas->beta1;
  options.adamw.beta2 = options.lion.beta2 = options.lamb.beta2 = group.betas->beta2;
}

// Does Muon leave `parameter` to AdamW?
bool IsRest(const MuonOptions& muon, const ParameterSpec& parameter) {
  const size_t dimensions = parameter.shape.size();
  if (dimensions != 2 && dimensions != 4) return true;
  const std::vector<int64_t>& strides = parameter.strides;
  const bool by_outputs = strides.empty() || std::ranges::max(strides) == strides[0];
  if (dimensions == 4 && !by_outputs) return true;
  return std::ranges::any_of(muon.rest, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), parameter.name.c_str(), FNM_CASEFOLD) == 0;
  });
}

// "name = value" lines.
class Lines {
 public:
  void AddText(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text_, name, " = ", value, "\n");
  }
  // Pairs of a name and a number or a choice; an optional that is absent has no line.
  template <class T, class... Rest>
  void Add(absl::string_view prefix, absl::string_view name, const T& value, const Rest&... rest) {
    AddNumber(absl::StrCat(prefix, name), value);
    if constexpr (sizeof...(rest) > 0) Add(prefix, rest...);
  }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  void AddNumber(absl::string_view name, const T& value) {
    AddText(name, absl::StrFormat("%.17g", static_cast<double>(value)));
  }
  template <class T>
  void AddNumber(absl::string_view name, const std::optional<T>& value) {
    if (value.has_value()) AddNumber(name, *value);
  }

  std::string text_;
};

void AddCurve(const RateCurve& curve, Lines& lines) {
  lines.Add("", "curve", curve.type);
  const RateCurve::Warmup& warmup = curve.warmup;
  lines.Add("curve.warmup.", "min_rate", warmup.min_rate, "max_rate", warmup.max_rate, "updates",
            warmup.updates, "total_updates", warmup.total_updates, "ramp", warmup.ramp, "min_ratio",
            warmup.min_ratio, "cosine_min_ratio", warmup.cosine_min_ratio);
  const RateCurve::OneCycle& cycle = curve.one_cycle;
  lines.Add("curve.one_cycle.", "min_rate", cycle.min_rate, "max_rate", cycle.max_rate,
            "first_updates", cycle.first_updates, "second_updates", cycle.second_updates,
            "first_stairs", cycle.first_stairs, "second_stairs", cycle.second_stairs,
            "decay_updates", cycle.decay_updates, "rate_decay", cycle.rate_decay, "momentum",
            cycle.momentum, "min_momentum", cycle.min_momentum, "max_momentum", cycle.max_momentum,
            "momentum_decay", cycle.momentum_decay);
  const auto& test = curve.range_test;
  lines.Add("curve.range_test.", "min_rate", test.min_rate, "updates", test.updates, "growth",
            test.growth, "shape", test.shape);
  const auto& phases = curve.phases;
  lines.Add("curve.phases.", "warmup_updates", phases.warmup_updates, "decay_updates",
            phases.decay_updates, "total_updates", phases.total_updates, "min_ratio",
            phases.min_ratio, "decay", phases.decay);
}

// The numbers of all optimizers, so that a line missing on one side means the same.
void AddNumbers(const OptimizerOptions& options, Lines& lines) {
  const SgdOptions& sgd = options.sgd;
  const AdamWOptions& adamw = options.adamw;
  const LionOptions& lion = options.lion;
  const AdagradOptions& adagrad = options.adagrad;
  const LambOptions& lamb = options.lamb;
  const MuonOptions& muon = options.muon;
  lines.Add("sgd.", "momentum", sgd.momentum, "dampening", sgd.dampening, "weight_decay",
            sgd.weight_decay, "nesterov", sgd.nesterov);
  lines.Add("adamw.", "beta1", adamw.beta1, "beta2", adamw.beta2, "epsilon", adamw.epsilon,
            "weight_decay", adamw.weight_decay);
  lines.Add("lion.", "beta1", lion.beta1, "beta2", lion.beta2, "weight_decay", lion.weight_decay,
            "form", lion.form);
  lines.Add("adagrad.", "rate_decay", adagrad.rate_decay, "weight_decay", adagrad.weight_decay,
            "initial_accumulator", adagrad.initial_accumulator, "epsilon", adagrad.epsilon);
  lines.Add("lamb.", "beta1", lamb.beta1, "beta2", lamb.beta2, "epsilon", lamb.epsilon,
            "weight_decay", lamb.weight_decay, "max_ratio", lamb.max_ratio, "min_ratio",
            lamb.min_ratio, "form", lamb.form);
  lines.Add("muon.", "momentum", muon.momentum, "weight_decay", muon.weight_decay, "rest_factor",
            muon.rest_factor);
  lines.AddText("muon.rest", absl::StrJoin(muon.rest, ", "));
}

}  // namespace

double PredictionFactor(const OptimizerOptions& options) {
  const bool sgd = options.type == OptimizerOptions::Type::kSgd;
  return options.prediction_factor.value_or(sgd ? options.sgd.momentum : 1);
}

absl::Status CheckOptimizer(const OptimizerOptions& options) {
  RZ_RETURN_IF_ERROR(CheckNotNegative("lr", options.learning_rate));
  RZ_RETURN_IF_ERROR(CheckNotNegative("max_norm", options.max_norm));
  const double factor = options.prediction_factor.value_or(0);
  if (!(factor >= 0 && factor <= 2)) return OutOfRange("prediction_factor", "in [0, 2]", factor);
  switch (options.type) {
    case OptimizerOptions::Type::kSgd: return CheckSgd(options.sgd);
    case OptimizerOptions::Type::kAdamW:
    case OptimizerOptions::Type::kAdam: return CheckAdam(options.adamw);
    case OptimizerOptions::Type::kLion:
      RZ_RETURN_IF_ERROR(CheckBetas(options.lion.beta1, options.lion.beta2));
      return CheckNotNegative("weight_decay", options.lion.weight_decay);
    case OptimizerOptions::Type::kAdagrad:
      RZ_RETURN_IF_ERROR(CheckNotNegative("lr_decay", options.adagrad.rate_decay));
      RZ_RETURN_IF_ERROR(CheckNotNegative("weight_decay", options.adagrad.weight_decay));
      RZ_RETURN_IF_ERROR(
          CheckNotNegative("initial_accumulator_value", options.adagrad.initial_accumulator));
      return CheckNotNegative("eps", options.adagrad.epsilon);
    case OptimizerOptions::Type::kCustom:
      if (options.custom != nullptr) return absl::OkStatus();
      return absl::InvalidArgumentError("optimizer: kCustom needs an update of its own (custom)");
    case OptimizerOptions::Type::kLamb: return CheckLamb(options.lamb);
    case OptimizerOptions::Type::kMuon:
      RZ_RETURN_IF_ERROR(CheckAdam(options.adamw));
      return CheckMuon(options.muon);
  }
  return absl::InternalError("optimizer type without a check");
}

absl::Status CheckGroup(const OptimizerOptions& options, const ParameterGroup& group) {
  if (!(group.rate_factor >= 0)) {
    return InvalidArgument("rate_factor must be at least 0, found ", group.rate_factor);
  }
  if (group.weight_decay.has_value() && options.type == OptimizerOptions::Type::kCustom) {
    return absl::InvalidArgumentError("weight_decay: an update of one's own has none");
  }
  const bool has_betas = options.type != OptimizerOptions::Type::kSgd &&
                         options.type != OptimizerOptions::Type::kAdagrad &&
                         options.type != OptimizerOptions::Type::kCustom;
  if (group.betas.has_value() && !has_betas) {
    return absl::InvalidArgumentError("betas: this optimizer has none");
  }
  OptimizerOptions resolved = options;
  Apply(group, resolved);
  return CheckOptimizer(resolved);
}

OptimizerOptions OptionsFor(const OptimizerOptions& options, const ParameterSpec& parameter) {
  OptimizerOptions own = options;
  own.groups.clear();
  own.decays = OptimizerOptions::Decays::kAll;
  const bool decays =
      options.decays == OptimizerOptions::Decays::kAll || parameter.shape.size() >= 2;
  if (!decays) SetDecay(own, 0);
  const auto group = std::ranges::find_if(
      options.groups, [&](const ParameterGroup& each) { return Matches(each, parameter); });
  if (group != options.groups.end()) Apply(*group, own);
  if (own.type == OptimizerOptions::Type::kMuon && IsRest(own.muon, parameter)) {
    own.type = OptimizerOptions::Type::kAdamW;
    own.rate_factor *= own.muon.rest_factor;
  }
  return own;
}

absl::Status CheckGroups(const OptimizerOptions& options, const std::vector<StageLayout>& stages) {
  for (const ParameterGroup& group : options.groups) {
    const std::string where = absl::StrCat("parameter group \"", group.pattern, "\"");
    RZ_RETURN_IF_ERROR(Annotate(CheckGroup(options, group), where));
    const auto matches = [&](const ParameterSpec& each) { return Matches(group, each); };
    const bool used = std::ranges::any_of(stages, [&](const StageLayout& stage) {
      return std::ranges::any_of(stage.parameters, matches);
    });
    if (!used) return InvalidArgument(where, " matches no parameter");
  }
  return absl::OkStatus();
}

std::string DescribeOptimizer(const OptimizerOptions& options) {
  Lines lines;
  lines.Add("", "type", options.type, "learning_rate", options.learning_rate, "rate_factor",
            options.rate_factor, "max_norm", options.max_norm, "decays", options.decays,
            "prediction_factor", options.prediction_factor);
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const ParameterGroup& group = options.groups[i];
    const std::string prefix = absl::StrCat("group ", i, ".");
    lines.AddText(absl::StrCat(prefix, "pattern"), group.pattern);
    lines.Add(prefix, "rate_factor", group.rate_factor, "weight_decay", group.weight_decay);
    if (!group.betas.has_value()) continue;
    lines.Add(prefix, "beta1", group.betas->beta1, "beta2", group.betas->beta2);
  }
  if (options.custom != nullptr) {
    for (const UpdateState& state : options.custom->states()) lines.AddText("state", state.name);
  }
  AddCurve(options.curve, lines);
  AddNumbers(options, lines);
  return lines.text();
}

}  // namespace ringzero
