// Ranges, as torch.optim checks them.
#include "zero/update/optimizer_options.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status OutOfRange(const char* key, const char* wanted, double found) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.params.", key, " must be ", wanted, ", found ", found));
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

}  // namespace

absl::Status CheckPredictable(const OptimizerOptions& options) {
  const bool sgd = options.type == OptimizerOptions::Type::kSgd && options.sgd.momentum > 0;
  if (sgd && options.sgd.nesterov == SgdOptions::Nesterov::kOff) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "predictions need an optimizer of type SGD with optimizer.params.momentum above 0 and "
      "without "
      "nesterov");
}

absl::Status CheckOptimizer(const OptimizerOptions& options) {
  RZ_RETURN_IF_ERROR(CheckNotNegative("lr", options.learning_rate));
  RZ_RETURN_IF_ERROR(CheckNotNegative("max_norm", options.max_norm));
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

}  // namespace ringzero
