// ParameterGroup: numbers of its own for some parameters, as torch.optim's param_groups, chosen by
// name.
//
//   options.groups = {{.pattern = "*.bias", .weight_decay = 0.0},
//                     {.pattern = "embed.*", .rate_factor = 0.1}};
//   options.decays = OptimizerOptions::Decays::kMatrices;   // norms and biases do not
//   OptionsFor(options, parameter).adamw.weight_decay;
//
// A pattern is a shell's (fnmatch): `*` is any text, `?` one letter, `[ab]` one of these. The first
// group whose pattern matches the whole name is the parameter's. Pure.
#ifndef RINGZERO_ZERO_UPDATE_PARAMETER_GROUPS_H_
#define RINGZERO_ZERO_UPDATE_PARAMETER_GROUPS_H_

#include "absl/status/status.h"
#include "zero/layout.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {

// What `parameter` is updated with: `options` with its group's numbers, and without groups. The
// rate is the group's share of the curve's: learning_rate and rate_factor multiply.
OptimizerOptions OptionsFor(const OptimizerOptions& options, const ParameterSpec& parameter);

// InvalidArgument for numbers of one group that CheckOptimizer refuses, or that this optimizer has
// not.
absl::Status CheckGroup(const OptimizerOptions& options, const ParameterGroup& group);

// InvalidArgument for a pattern that matches none of these parameters, and for what
// CheckGroup refuses; names the pattern.
absl::Status CheckGroups(const OptimizerOptions& options, const std::vector<StageLayout>& stages);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_PARAMETER_GROUPS_H_
