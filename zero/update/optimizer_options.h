// OptimizerOptions: which optimizer, and its numbers.
//
//   OptimizerOptions options{.type = OptimizerOptions::Type::kLion, .learning_rate = 1e-4};
//   options.lion.weight_decay = 0.1;
//   RZ_RETURN_IF_ERROR(CheckOptimizer(options));
//
// Defaults are torch.optim's, Lion's DeepSpeed's. A value.
#ifndef RINGZERO_ZERO_UPDATE_OPTIMIZER_OPTIONS_H_
#define RINGZERO_ZERO_UPDATE_OPTIMIZER_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "zero/rate_curve.h"
#include "zero/update/elementwise_update.h"

namespace ringzero {

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  enum class Nesterov { kOff, kOn } nesterov = Nesterov::kOff;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;  // decoupled
};

struct AdagradOptions {
  double rate_decay = 0;
  double weight_decay = 0;
  double initial_accumulator = 0;
  double epsilon = 1e-10;
};

// Numbers of its own for some parameters (parameter_groups.h).
struct ParameterGroup {
  std::string pattern;  // of names, as a shell's: "*.bias"
  double rate_factor = 1;
  std::optional<double> weight_decay = std::nullopt;  // absent: the optimizer's
  std::optional<UpdateRate::Betas> betas = std::nullopt;
};

struct OptimizerOptions {
  // kAdam: weight decay is part of the gradient (L2), not of the update; else it is kAdamW.
  enum class Type { kSgd, kAdamW, kAdam, kLion, kAdagrad, kCustom } type = Type::kAdamW;
  double learning_rate = 1e-3;
  RateCurve curve;         // of the rate, over updates; constant unless set
  double rate_factor = 1;  // of the curve's rate
  // Gradients are scaled down to this norm where theirs is greater (Plan::clipping says which
  // norm); 0: never.
  double max_norm = 0;
  // Which parameters decay, unless their group says otherwise: all, or those with two dimensions
  // and more, so that norms and biases do not.
  enum class Decays { kAll, kMatrices } decays = Decays::kAll;
  std::vector<ParameterGroup> groups;
  SgdOptions sgd;
  AdamWOptions adamw;  // of kAdam, too
  LionOptions lion;
  AdagradOptions adagrad;
  std::shared_ptr<const ElementwiseUpdate> custom;  // kCustom: MakeElementwise(…)
};

// InvalidArgument for rates, betas or decays outside of their ranges; names the key.
absl::Status CheckOptimizer(const OptimizerOptions& options);

// Of options that CheckOptimizer lets pass.
std::shared_ptr<const ElementwiseUpdate> MakeUpdate(const OptimizerOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_OPTIMIZER_OPTIONS_H_
