// OptimizerOptions: which optimizer, and its numbers.
//
//   OptimizerOptions options{.type = OptimizerOptions::Type::kLion, .learning_rate = 1e-4};
//   options.lion.weight_decay = 0.1;
//   RZ_RETURN_IF_ERROR(CheckOptimizer(options));
//
// Defaults are torch.optim's; for Lion and LAMB they are DeepSpeed's. A value type.
#ifndef RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_OPTIONS_H_
#define RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "zero/layout.h"
#include "zero/optimizer/parameter_update.h"
#include "zero/optimizer/rate_curve.h"

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

// Whose formula, where DeepSpeed's is not the paper's.
enum class UpdateForm { kDeepSpeed, kPaper };

// θ moves by the rate against the sign of a direction. If the direction is 0, θ does not move in
// the paper (Chen et al., arXiv 2302.06675). In DeepSpeed (csrc/lion/cpu_lion_impl.cpp) θ then
// moves against the zero's own sign: by -rate for +0.
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;  // decoupled
  UpdateForm form = UpdateForm::kDeepSpeed;
};

struct AdagradOptions {
  double rate_decay = 0;
  double weight_decay = 0;
  double initial_accumulator = 0;
  double epsilon = 1e-10;
};

// θ moves by rate · ratio · update. The trust ratio ‖θ‖ / ‖update‖ is cut to [min_ratio,
// max_ratio], and is 1 if a norm is 0. The paper's update (You et al., arXiv 1904.00962,
// algorithm 2) takes moments corrected for their start at 0. DeepSpeed's update (FusedLamb,
// csrc/lamb/fused_lamb_cuda_kernel.cu) takes the moments as they are, and corrects the rate by
// sqrt(1 - beta2^updates) / (1 - beta1^updates).
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double max_ratio = 10;
  double min_ratio = 0.01;
  UpdateForm form = UpdateForm::kDeepSpeed;
};

// Keller Jordan's Muon (kellerjordan.github.io/posts/muon): momentum of matrices, made orthogonal
// by five Newton-Schulz steps. A matrix has two dimensions, or four (a convolution's: a row for
// each output, and stored by rows). AdamW (OptimizerOptions::adamw) updates all other
// parameters, and every parameter whose name matches one of `rest`, in upper or lower case.
struct MuonOptions {
  double momentum = 0.95;
  double weight_decay = 0;  // decoupled
  double rest_factor = 1;   // multiplies the rate where AdamW updates
  std::vector<std::string> rest = {"*embed*", "*lm_head*", "head.*"};
};

// Own numbers for some parameters, as torch.optim's param_groups, chosen by name. A parameter is in
// the first group whose pattern matches its whole name.
//
//   options.groups = {{.pattern = "*.bias", .weight_decay = 0.0},
//                     {.pattern = "embed.*", .rate_factor = 0.1}};
struct ParameterGroup {
  std::string pattern;  // a shell's (fnmatch): `*` any text, `?` one letter, `[ab]` one of these
  double rate_factor = 1;
  std::optional<double> weight_decay = std::nullopt;  // absent: the optimizer's
  std::optional<UpdateRate::Betas> betas = std::nullopt;
};

struct OptimizerOptions {
  // kAdam: weight decay is part of the gradient (L2), not of the update; otherwise as kAdamW.
  enum class Type {
    kSgd,
    kAdamW,
    kAdam,
    kLion,
    kAdagrad,
    kCustom,
    kLamb,
    kMuon
  } type = Type::kAdamW;
  double learning_rate = 1e-3;
  RateCurve curve;         // of the rate, over updates; constant unless set
  double rate_factor = 1;  // multiplies the curve's rate
  // Gradients whose norm is greater are scaled down to this norm (Plan::clipping says which norm).
  // 0: never.
  double max_norm = 0;
  // Which parameters decay, unless their group says otherwise: all, or those with two dimensions
  // and more, so that norms and biases do not.
  enum class Decays { kAll, kMatrices } decays = Decays::kAll;
  std::vector<ParameterGroup> groups;
  SgdOptions sgd;
  AdamWOptions adamw;  // also of kAdam, and of what kMuon leaves to AdamW
  LionOptions lion;
  AdagradOptions adagrad;
  LambOptions lamb;
  MuonOptions muon;
  std::shared_ptr<const ElementwiseUpdate> custom;  // kCustom: MakeElementwise(…)
  // Of predictions (Plan::predict): 0 to 2. Absent: the momentum of SGD, 1 of the others.
  std::optional<double> prediction_factor;
};

// a of the prediction θ' + a · (θ' - θ) of what the update behind θ' makes (kernels.h).
double PredictionFactor(const OptimizerOptions& options);

// InvalidArgument for rates, betas or decays outside of their ranges; names the key.
absl::Status CheckOptimizer(const OptimizerOptions& options);

// What `parameter` is updated with: `options` with its group's numbers, and without groups. Its
// rate is the curve's rate (of learning_rate) times rate_factor; the group's factor is part of it.
OptimizerOptions OptionsFor(const OptimizerOptions& options, const ParameterSpec& parameter);

// InvalidArgument for numbers of one group that CheckOptimizer refuses, or that this optimizer does
// not have.
absl::Status CheckGroup(const OptimizerOptions& options, const ParameterGroup& group);

// InvalidArgument for a pattern that matches none of these parameters, and for what
// CheckGroup refuses; names the pattern.
absl::Status CheckGroups(const OptimizerOptions& options, const std::vector<StageLayout>& stages);

// The update of one parameter, by its own options (OptionsFor) that CheckOptimizer lets pass.
std::shared_ptr<const ParameterUpdate> MakeUpdate(const OptimizerOptions& options,
                                                  const ParameterSpec& parameter);

// "name = value" lines; numbers read back equal. Of a custom update only the names of its
// states are told.
std::string DescribeOptimizer(const OptimizerOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_OPTIONS_H_
