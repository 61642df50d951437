// The elementwise updates that come with the engine: their numbers for one update, and the kernel
// that takes them.
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "zero/update/kernels.h"
#include "zero/update/optimizer_options.h"
#include "zero/update/phased_updates.h"

namespace ringzero {
namespace {

class SgdUpdate final : public ElementwiseUpdate {
 public:
  explicit SgdUpdate(const SgdOptions& options)
      : ElementwiseUpdate(options.momentum != 0 ? std::vector<UpdateState>{{"momentum_buffer"}}
                                                : std::vector<UpdateState>()),
        options_(options) {}
  void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
    SgdPass({.divisor = moment.divides_by(),
             .clip = moment.clip,
             .weight_decay = float(options_.weight_decay),
             .momentum = float(options_.momentum),
             .undamped = float(1 - options_.dampening),
             .rate = float(moment.rate),
             .has_momentum = options_.momentum != 0,
             .first_time = moment.updates == 1,
             .nesterov = options_.nesterov == SgdOptions::Nesterov::kOn},
            span);
  }

 private:
  const SgdOptions options_;
};

class AdamUpdate final : public ElementwiseUpdate {
 public:
  enum class Decay { kDecoupled, kInGradient };
  AdamUpdate(const AdamWOptions& options, Decay decay)
      : ElementwiseUpdate({{"exp_avg"}, {"exp_avg_sq"}}), options_(options), decay_(decay) {}
  void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
    const UpdateRate::Betas betas =
        moment.betas.value_or(UpdateRate::Betas{options_.beta1, options_.beta2});
    const double correction1 = 1 - std::pow(betas.beta1, double(moment.updates));
    const double correction2 = 1 - std::pow(betas.beta2, double(moment.updates));
    const bool decoupled = decay_ == Decay::kDecoupled;
    AdamPass({.divisor = moment.divides_by(),
              .clip = moment.clip,
              .keep = decoupled ? float(1 - moment.rate * options_.weight_decay) : 1,
              .weight_decay = decoupled ? 0 : float(options_.weight_decay),
              .beta1 = float(betas.beta1),
              .one_minus_beta1 = float(1 - betas.beta1),
              .beta2 = float(betas.beta2),
              .one_minus_beta2 = float(1 - betas.beta2),
              .root_correction2 = float(std::sqrt(correction2)),
              .epsilon = float(options_.epsilon),
              .step_size = float(moment.rate / correction1)},
             span);
  }

 private:
  const AdamWOptions options_;
  const Decay decay_;
};

class LionUpdate final : public ElementwiseUpdate {
 public:
  explicit LionUpdate(const LionOptions& options)
      : ElementwiseUpdate({{"exp_avg"}}), options_(options) {}
  void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
    const UpdateRate::Betas betas =
        moment.betas.value_or(UpdateRate::Betas{options_.beta1, options_.beta2});
    LionPass({.divisor = moment.divides_by(),
              .clip = moment.clip,
              .keep = float(1 - moment.rate * options_.weight_decay),
              .beta1 = float(betas.beta1),
              .one_minus_beta1 = float(1 - betas.beta1),
              .beta2 = float(betas.beta2),
              .one_minus_beta2 = float(1 - betas.beta2),
              .rate = float(moment.rate),
              .least = options_.form == UpdateForm::kPaper ? kSmallest : 0},
             span);
  }

 private:
  static constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const LionOptions options_;
};

class AdagradUpdate final : public ElementwiseUpdate {
 public:
  explicit AdagradUpdate(const AdagradOptions& options)
      : ElementwiseUpdate({{"sum", float(options.initial_accumulator)}}), options_(options) {}
  void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
    const double slowed = 1 + double(moment.updates - 1) * options_.rate_decay;
    AdagradPass({.divisor = moment.divides_by(),
                 .clip = moment.clip,
                 .weight_decay = float(options_.weight_decay),
                 .epsilon = float(options_.epsilon),
                 .rate = float(moment.rate / slowed)},
                span);
  }

 private:
  const AdagradOptions options_;
};

}  // namespace

std::shared_ptr<const ParameterUpdate> MakeUpdate(const OptimizerOptions& options,
                                                  const ParameterSpec& parameter) {
  switch (options.type) {
    case OptimizerOptions::Type::kSgd: return std::make_shared<SgdUpdate>(options.sgd);
    case OptimizerOptions::Type::kAdamW:
      return std::make_shared<AdamUpdate>(options.adamw, AdamUpdate::Decay::kDecoupled);
    case OptimizerOptions::Type::kAdam:
      return std::make_shared<AdamUpdate>(options.adamw, AdamUpdate::Decay::kInGradient);
    case OptimizerOptions::Type::kLion: return std::make_shared<LionUpdate>(options.lion);
    case OptimizerOptions::Type::kAdagrad: return std::make_shared<AdagradUpdate>(options.adagrad);
    case OptimizerOptions::Type::kCustom: return options.custom;
    case OptimizerOptions::Type::kLamb: return MakeLambUpdate(options.lamb);
    case OptimizerOptions::Type::kMuon: return MakeMuonUpdate(options.muon, parameter);
  }
  RZ_CHECK(false, "optimizer type without an update");
  return nullptr;
}

}  // namespace ringzero
