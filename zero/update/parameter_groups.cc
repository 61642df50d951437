// Patterns by fnmatch.
#include "zero/update/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

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

bool HasBetas(OptimizerOptions::Type type) {
  using Type = OptimizerOptions::Type;
  return type != Type::kSgd && type != Type::kAdagrad && type != Type::kCustom;
}

// Does Muon leave it to AdamW?
bool IsRest(const MuonOptions& muon, const ParameterSpec& parameter) {
  const size_t dimensions = parameter.shape.size();
  if (dimensions != 2 && dimensions != 4) return true;
  const std::vector<int64_t>& strides = parameter.strides;
  const bool by_outputs =
      strides.empty() || *std::max_element(strides.begin(), strides.end()) == strides[0];
  if (dimensions == 4 && !by_outputs) return true;
  return std::any_of(muon.rest.begin(), muon.rest.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), parameter.name.c_str(), FNM_CASEFOLD) == 0;
  });
}

}  // namespace

absl::Status CheckGroup(const OptimizerOptions& options, const ParameterGroup& group) {
  if (!(group.rate_factor >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rate_factor must be at least 0, found ", group.rate_factor));
  }
  if (group.weight_decay.has_value() && options.type == OptimizerOptions::Type::kCustom) {
    return absl::InvalidArgumentError("weight_decay: an update of one's own has none");
  }
  if (group.betas.has_value() && !HasBetas(options.type)) {
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
  const auto group =
      std::find_if(options.groups.begin(), options.groups.end(),
                   [&](const ParameterGroup& each) { return Matches(each, parameter); });
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
    const bool used = std::any_of(stages.begin(), stages.end(), [&](const StageLayout& stage) {
      return std::any_of(stage.parameters.begin(), stage.parameters.end(),
                         [&](const ParameterSpec& each) { return Matches(group, each); });
    });
    if (!used) return absl::InvalidArgumentError(absl::StrCat(where, " matches no parameter"));
  }
  return absl::OkStatus();
}

}  // namespace ringzero
