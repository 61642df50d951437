// Line by line, in the order of the options.
#include "zero/update/describe_optimizer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ringzero {
namespace {

class Lines {
 public:
  void Add(absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text_, prefix_, name, " = ", value, "\n");
  }
  void Add(absl::string_view name, double value) { Add(name, absl::StrFormat("%.17g", value)); }
  template <typename T>
  void AddOptional(absl::string_view name, const std::optional<T>& value) {
    if (value.has_value()) Add(name, static_cast<double>(*value));
  }
  void Within(absl::string_view prefix) { prefix_ = std::string(prefix); }
  std::string text() const { return text_; }

 private:
  std::string prefix_, text_;
};

void AddWarmup(const RateCurve::Warmup& warmup, Lines& lines) {
  lines.Within("curve.warmup.");
  lines.Add("min_rate", warmup.min_rate);
  lines.AddOptional("max_rate", warmup.max_rate);
  lines.Add("updates", double(warmup.updates));
  lines.Add("total_updates", double(warmup.total_updates));
  lines.Add("ramp", double(static_cast<int>(warmup.ramp)));
  lines.Add("min_ratio", warmup.min_ratio);
  lines.Add("cosine_min_ratio", warmup.cosine_min_ratio);
}

void AddCycle(const RateCurve::OneCycle& cycle, Lines& lines) {
  lines.Within("curve.one_cycle.");
  lines.Add("min_rate", cycle.min_rate);
  lines.Add("max_rate", cycle.max_rate);
  lines.Add("first_updates", cycle.first_updates);
  lines.AddOptional("second_updates", cycle.second_updates);
  lines.Add("first_stairs", double(cycle.first_stairs));
  lines.AddOptional("second_stairs", cycle.second_stairs);
  lines.Add("decay_updates", cycle.decay_updates);
  lines.Add("rate_decay", cycle.rate_decay);
  lines.Add("momentum", double(static_cast<int>(cycle.momentum)));
  lines.Add("min_momentum", cycle.min_momentum);
  lines.Add("max_momentum", cycle.max_momentum);
  lines.Add("momentum_decay", cycle.momentum_decay);
}

void AddCurve(const RateCurve& curve, Lines& lines) {
  lines.Add("curve", double(static_cast<int>(curve.type)));
  AddWarmup(curve.warmup, lines);
  AddCycle(curve.one_cycle, lines);
  lines.Within("curve.range_test.");
  lines.Add("min_rate", curve.range_test.min_rate);
  lines.Add("updates", double(curve.range_test.updates));
  lines.Add("growth", curve.range_test.growth);
  lines.Add("shape", double(static_cast<int>(curve.range_test.shape)));
  lines.Within("curve.phases.");
  lines.Add("warmup_updates", double(curve.phases.warmup_updates));
  lines.AddOptional("decay_updates", curve.phases.decay_updates);
  lines.Add("total_updates", double(curve.phases.total_updates));
  lines.Add("min_ratio", curve.phases.min_ratio);
  lines.Add("decay", double(static_cast<int>(curve.phases.decay)));
}

void AddAdam(absl::string_view name, const AdamWOptions& adam, Lines& lines) {
  lines.Within(absl::StrCat(name, "."));
  lines.Add("beta1", adam.beta1);
  lines.Add("beta2", adam.beta2);
  lines.Add("epsilon", adam.epsilon);
  lines.Add("weight_decay", adam.weight_decay);
}

// Of all optimizers, so that a line missing on one side means the same.
void AddNumbers(const OptimizerOptions& options, Lines& lines) {
  lines.Within("sgd.");
  lines.Add("momentum", options.sgd.momentum);
  lines.Add("dampening", options.sgd.dampening);
  lines.Add("weight_decay", options.sgd.weight_decay);
  lines.Add("nesterov", double(static_cast<int>(options.sgd.nesterov)));
  AddAdam("adamw", options.adamw, lines);
  lines.Within("lion.");
  lines.Add("beta1", options.lion.beta1);
  lines.Add("beta2", options.lion.beta2);
  lines.Add("weight_decay", options.lion.weight_decay);
  lines.Add("form", double(static_cast<int>(options.lion.form)));
  lines.Within("adagrad.");
  lines.Add("rate_decay", options.adagrad.rate_decay);
  lines.Add("weight_decay", options.adagrad.weight_decay);
  lines.Add("initial_accumulator", options.adagrad.initial_accumulator);
  lines.Add("epsilon", options.adagrad.epsilon);
  const LambOptions& lamb = options.lamb;
  AddAdam("lamb", {lamb.beta1, lamb.beta2, lamb.epsilon, lamb.weight_decay}, lines);
  lines.Add("max_ratio", lamb.max_ratio);
  lines.Add("min_ratio", lamb.min_ratio);
  lines.Add("form", double(static_cast<int>(lamb.form)));
  lines.Within("muon.");
  lines.Add("momentum", options.muon.momentum);
  lines.Add("weight_decay", options.muon.weight_decay);
  lines.Add("rest_factor", options.muon.rest_factor);
  lines.Add("rest", absl::StrJoin(options.muon.rest, ", "));
}

}  // namespace

std::string DescribeOptimizer(const OptimizerOptions& options) {
  Lines lines;
  lines.Add("type", double(static_cast<int>(options.type)));
  lines.Add("learning_rate", options.learning_rate);
  lines.Add("rate_factor", options.rate_factor);
  lines.Add("max_norm", options.max_norm);
  lines.Add("decays", double(static_cast<int>(options.decays)));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const ParameterGroup& group = options.groups[i];
    lines.Within(absl::StrCat("group ", i, "."));
    lines.Add("pattern", group.pattern);
    lines.Add("rate_factor", group.rate_factor);
    lines.AddOptional("weight_decay", group.weight_decay);
    if (!group.betas.has_value()) continue;
    lines.Add("beta1", group.betas->beta1);
    lines.Add("beta2", group.betas->beta2);
  }
  lines.Within("");
  if (options.custom != nullptr) {
    for (const UpdateState& state : options.custom->states()) lines.Add("state", state.name);
  }
  AddCurve(options.curve, lines);
  AddNumbers(options, lines);
  return lines.text();
}

}  // namespace ringzero
