// LAMB: Adam's update, scaled to the norm of its parameter.
#include <algorithm>
#include <cmath>

#include "zero/update/kernels.h"
#include "zero/update/phased_updates.h"

namespace ringzero {
namespace {

constexpr int64_t kChunk = 2048;  // values of an update at a time: they stay in the first cache

class LambUpdate final : public ParameterUpdate {
 public:
  explicit LambUpdate(const LambOptions& options)
      : ParameterUpdate({{"exp_avg"}, {"exp_avg_sq"}}), options_(options) {}

  std::vector<UpdatePhase> Phases(int64_t values) const override {
    const UpdatePhase all{.items = values, .block_items = kUpdateBlockValues};
    return {all, {.items = 1}, all};
  }
  // The trust ratio, and per block the lanes of two squared norms: θ's and the update's.
  int64_t ScratchBytes(int64_t values) const override {
    return (kSquareLanes + 2 * kSquareLanes * UpdateBlocks(values)) * int64_t{sizeof(double)};
  }
  void Run(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
           std::byte* scratch) const override {
    auto* const numbers = reinterpret_cast<double*>(scratch);
    const LambStep step = StepOf(moment);
    if (part.phase == 0) {
      double* const lanes =
          numbers + kSquareLanes + 2 * kSquareLanes * (part.begin / kUpdateBlockValues);
      if (part.begin % kUpdateBlockValues == 0) std::fill_n(lanes, 2 * kSquareLanes, 0.0);
      return TakeMoments(step, BlockOf(whole, part), lanes);
    }
    if (part.phase == 1) {
      numbers[0] = TrustRatio(numbers + kSquareLanes, UpdateBlocks(whole.count));
      return;
    }
    Move(step, float(RateOf(moment) * numbers[0]), BlockOf(whole, part));
  }

 private:
  UpdateRate::Betas BetasOf(const UpdateMoment& moment) const {
    return moment.betas.value_or(UpdateRate::Betas{options_.beta1, options_.beta2});
  }
  // What the weights of a moment's gradients add up to.
  static double Correction(double beta, const UpdateMoment& moment) {
    return 1 - std::pow(beta, double(moment.updates));
  }
  double RateOf(const UpdateMoment& moment) const {
    if (options_.form == UpdateForm::kPaper) return moment.rate;
    const UpdateRate::Betas betas = BetasOf(moment);
    return moment.rate * std::sqrt(Correction(betas.beta2, moment)) /
           Correction(betas.beta1, moment);
  }

  LambStep StepOf(const UpdateMoment& moment) const {
    const UpdateRate::Betas betas = BetasOf(moment);
    const bool corrects = options_.form == UpdateForm::kPaper;
    return {.divisor = moment.divides_by(),
            .clip = moment.clip,
            .weight_decay = float(options_.weight_decay),
            .beta1 = float(betas.beta1),
            .one_minus_beta1 = float(1 - betas.beta1),
            .beta2 = float(betas.beta2),
            .one_minus_beta2 = float(1 - betas.beta2),
            .correction1 = corrects ? float(Correction(betas.beta1, moment)) : 1,
            .correction2 = corrects ? float(Correction(betas.beta2, moment)) : 1,
            .epsilon = float(options_.epsilon)};
  }

  static void TakeMoments(const LambStep& step, const UpdateSpan& block, double* lanes) {
    alignas(64) float update[kChunk];
    for (int64_t i = 0; i < block.count; i += kChunk) {
      UpdateSpan chunk = PartOf(block, i, std::min(i + kChunk, block.count));
      SquaresPass(chunk.theta, chunk.count, lanes);
      chunk.out = update;
      LambMomentsPass(step, chunk);
      SquaresPass(update, chunk.count, lanes + kSquareLanes);
    }
  }

  double TrustRatio(const double* lanes, int64_t blocks) const {
    double theta = 0, update = 0;
    for (int64_t i = 0; i < blocks; ++i, lanes += 2 * kSquareLanes) {
      theta += FoldLanes(lanes);
      update += FoldLanes(lanes + kSquareLanes);
    }
    if (theta == 0 || update == 0) return 1;
    const double ratio = std::sqrt(theta) / std::sqrt(update);
    return std::min(std::max(ratio, options_.min_ratio), options_.max_ratio);
  }

  static void Move(const LambStep& step, float rate, const UpdateSpan& block) {
    alignas(64) float update[kChunk];
    for (int64_t i = 0; i < block.count; i += kChunk) {
      UpdateSpan chunk = PartOf(block, i, std::min(i + kChunk, block.count));
      UpdateSpan direction = chunk;
      direction.out = update;
      LambDirectionPass(step, direction);
      chunk.sum = update;
      MovePass({.rate = rate}, chunk);
    }
  }

  const LambOptions options_;
};

}  // namespace

std::shared_ptr<const ParameterUpdate> MakeLambUpdate(const LambOptions& options) {
  return std::make_shared<const LambUpdate>(options);
}

}  // namespace ringzero
