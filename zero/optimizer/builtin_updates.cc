// The updates that come with the engine: the numbers of one update, and the passes that take them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "zero/layout.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/optimizer_options.h"

namespace ringzero {
namespace {

template <class Options>
UpdateRate::Betas BetasOf(const UpdateMoment& moment, const Options& options) {
  return moment.betas.value_or(UpdateRate::Betas{options.beta1, options.beta2});
}

MomentWeights WeightsOf(const UpdateRate::Betas& betas) {
  return {.beta1 = float(betas.beta1),
          .one_minus_beta1 = float(1 - betas.beta1),
          .beta2 = float(betas.beta2),
          .one_minus_beta2 = float(1 - betas.beta2)};
}

// Adam's bias correction: what the weights of a moment's gradients add up to.
double Correction(double beta, const UpdateMoment& moment) {
  return 1 - std::pow(beta, double(moment.updates));
}

// An elementwise update by one pass.
class PassUpdate final : public ElementwiseUpdate {
 public:
  using StepOf = std::function<UpdateStep(const UpdateMoment&)>;
  PassUpdate(std::vector<UpdateState> states, StepOf step_of)
      : ElementwiseUpdate(std::move(states)), step_of_(std::move(step_of)) {}
  void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
    UpdatePass(step_of_(moment), span);
  }

 private:
  const StepOf step_of_;
};

template <class Options, class StepOf>
std::shared_ptr<const PassUpdate> ByPass(std::vector<UpdateState> states, const Options& options,
                                         StepOf step_of) {
  return std::make_shared<PassUpdate>(std::move(states), std::bind_front(step_of, options));
}

SgdStep SgdStepOf(const SgdOptions& options, const UpdateMoment& moment) {
  return {.divisor = moment.divides_by(),
          .clip = moment.clip,
          .weight_decay = float(options.weight_decay),
          .momentum = float(options.momentum),
          .undamped = float(1 - options.dampening),
          .rate = float(moment.rate),
          .has_momentum = options.momentum != 0,
          .first_time = moment.updates == 1,
          .nesterov = options.nesterov == SgdOptions::Nesterov::kOn};
}

enum class Decay { kDecoupled, kInGradient };
template <Decay kDecay>
AdamStep AdamStepOf(const AdamWOptions& options, const UpdateMoment& moment) {
  const UpdateRate::Betas betas = BetasOf(moment, options);
  constexpr bool decoupled = kDecay == Decay::kDecoupled;
  return {.divisor = moment.divides_by(),
          .clip = moment.clip,
          .keep = decoupled ? float(1 - moment.rate * options.weight_decay) : 1,
          .weight_decay = decoupled ? 0 : float(options.weight_decay),
          .betas = WeightsOf(betas),
          .root_correction2 = float(std::sqrt(Correction(betas.beta2, moment))),
          .epsilon = float(options.epsilon),
          .step_size = float(moment.rate / Correction(betas.beta1, moment))};
}

LionStep LionStepOf(const LionOptions& options, const UpdateMoment& moment) {
  const bool paper = options.form == UpdateForm::kPaper;
  return {.divisor = moment.divides_by(),
          .clip = moment.clip,
          .keep = float(1 - moment.rate * options.weight_decay),
          .betas = WeightsOf(BetasOf(moment, options)),
          .rate = float(moment.rate),
          .least = paper ? std::numeric_limits<float>::denorm_min() : 0};
}

AdagradStep AdagradStepOf(const AdagradOptions& options, const UpdateMoment& moment) {
  const double slowed = 1 + double(moment.updates - 1) * options.rate_decay;
  return {.divisor = moment.divides_by(),
          .clip = moment.clip,
          .weight_decay = float(options.weight_decay),
          .epsilon = float(options.epsilon),
          .rate = float(moment.rate / slowed)};
}

constexpr int64_t kChunk = 2048;  // values of LAMB's update at a time: they stay in the first cache

// LAMB: Adam's update, scaled to the norm of its parameter. Phase 0: the moments, and per block
// the partial norms of θ and of the update. Phase 1: the trust ratio. Phase 2: the new values, from
// the moments once more, so that no update is kept.
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
  double RateOf(const UpdateMoment& moment) const {
    if (options_.form == UpdateForm::kPaper) return moment.rate;
    const UpdateRate::Betas betas = BetasOf(moment, options_);
    return moment.rate * std::sqrt(Correction(betas.beta2, moment)) /
           Correction(betas.beta1, moment);
  }

  LambStep StepOf(const UpdateMoment& moment) const {
    const UpdateRate::Betas betas = BetasOf(moment, options_);
    const bool corrects = options_.form == UpdateForm::kPaper;
    return {.divisor = moment.divides_by(),
            .clip = moment.clip,
            .weight_decay = float(options_.weight_decay),
            .betas = WeightsOf(betas),
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
      UpdatePass(step, chunk);
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

  static void Move(LambStep step, float rate, const UpdateSpan& block) {
    step.takes_gradient = false;
    alignas(64) float update[kChunk];
    for (int64_t i = 0; i < block.count; i += kChunk) {
      UpdateSpan chunk = PartOf(block, i, std::min(i + kChunk, block.count));
      UpdateSpan direction = chunk;
      direction.out = update;
      UpdatePass(step, direction);
      chunk.sum = update;
      UpdatePass(MoveStep{.rate = rate}, chunk);
    }
  }

  const LambOptions options_;
};

constexpr int kSteps = 5;
constexpr float kLinear = 3.4445f, kCubic = -4.7750f, kQuintic = 2.0315f;
constexpr double kEpsilon = 1e-7;
constexpr int64_t kBlockProducts = int64_t{4} << 20;  // products in a block: about a millisecond

int64_t AlignBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Muon: momentum of a matrix, made orthogonal (Keller Jordan, kellerjordan.github.io/posts/muon).
// For a parameter of two or four dimensions.
//
// Working memory: X and the next X (rows by columns, no more rows than columns), A = X Xᵀ and
// B = b A + c A A (rows by rows). In front of these matrices lie 1 / norm and, per block, the lanes
// of a squared norm.
class MuonUpdate final : public ParameterUpdate {
 public:
  MuonUpdate(const MuonOptions& options, const ParameterSpec& parameter)
      : ParameterUpdate({{"momentum_buffer"}}), options_(options) {
    const std::vector<int64_t>& shape = parameter.shape;
    const int64_t outputs = shape[0];
    const int64_t inputs =
        std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
    // A matrix that is stored by columns is its transpose stored by rows.
    const bool by_columns = shape.size() == 2 && !parameter.strides.empty() &&
                            parameter.strides[0] < parameter.strides[1];
    stored_rows_ = by_columns ? inputs : outputs;
    stored_columns_ = by_columns ? outputs : inputs;
    rows_ = std::min(outputs, inputs);
    columns_ = std::max(outputs, inputs);
    turns_ = stored_rows_ > stored_columns_;
    // As published: the ratio of the last two dimensions, also if the parameter has four.
    const double tall =
        double(shape[shape.size() - 2]) / double(std::max<int64_t>(1, shape.back()));
    scale_ = std::sqrt(std::max(1.0, tall));
  }

  std::vector<UpdatePhase> Phases(int64_t values) const override {
    const UpdatePhase all{.items = values, .block_items = kUpdateBlockValues};
    std::vector<UpdatePhase> phases = {all, {.items = 1}, Rows(rows_, columns_)};
    for (int step = 0; step < kSteps; ++step) {
      phases.push_back(Rows(rows_, rows_ * columns_));
      phases.push_back(Rows(rows_, rows_ * rows_));
      phases.push_back(Rows(rows_, rows_ * columns_));
    }
    if (turns_) phases.push_back(Rows(stored_rows_, stored_columns_));
    phases.push_back(all);
    return phases;
  }

  int64_t ScratchBytes(int64_t values) const override {
    return AlignBytes(NumberBytes(values) + 2 * AlignBytes(values * 4) +
                      2 * AlignBytes(rows_ * rows_ * 4));
  }

  void Run(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
           std::byte* scratch) const override {
    const Memory memory = MemoryAt(scratch, whole.count);
    const int last = 3 + 3 * kSteps + (turns_ ? 1 : 0);
    if (part.phase == 0) return TakeMoment(part, moment, whole, memory);
    if (part.phase == 1) return FoldNorm(whole.count, memory);
    if (part.phase == 2) return Normalize(part, memory);
    if (part.phase < 3 + 3 * kSteps) return Step(part, memory);
    if (part.phase < last) return TurnBack(part, memory);
    UpdateSpan span = BlockOf(whole, part);
    span.sum = (turns_ ? memory.x : memory.next) + part.begin;
    UpdatePass(MoveStep{.keep = float(1 - moment.rate * options_.weight_decay),
                        .rate = float(moment.rate * scale_)},
               span);
  }

 private:
  struct Memory {
    double* numbers;  // 1 / norm, then lanes of squares by block
    float* x;
    float* next;
    float* a;
    float* b;
  };

  static int64_t NumberBytes(int64_t values) {
    return AlignBytes((1 + UpdateBlocks(values)) * kSquareLanes * int64_t{sizeof(double)});
  }
  static UpdatePhase Rows(int64_t rows, int64_t row_products) {
    return {.items = rows,
            .block_items =
                std::max<int64_t>(4, kBlockProducts / std::max<int64_t>(1, row_products) / 4 * 4)};
  }

  Memory MemoryAt(std::byte* scratch, int64_t values) const {
    std::byte* at = scratch + NumberBytes(values);
    const auto take = [&](int64_t count) {
      auto* const found = reinterpret_cast<float*>(at);
      at += AlignBytes(count * 4);
      return found;
    };
    Memory memory{.numbers = reinterpret_cast<double*>(scratch)};
    memory.x = take(values);
    memory.next = take(values);
    memory.a = take(rows_ * rows_);
    memory.b = take(rows_ * rows_);
    return memory;
  }

  // Updates the momentum; its Nesterov form goes into `next`, laid out as the parameter is stored.
  void TakeMoment(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
                  const Memory& memory) const {
    UpdateSpan span = BlockOf(whole, part);
    span.out = memory.next + part.begin;
    UpdatePass(MuonStep{.divisor = moment.divides_by(),
                        .clip = moment.clip,
                        .one_minus_momentum = float(1 - options_.momentum)},
               span);
    double* const lanes = memory.numbers + kSquareLanes * (1 + part.begin / kUpdateBlockValues);
    if (part.begin % kUpdateBlockValues == 0) std::fill_n(lanes, kSquareLanes, 0.0);
    SquaresPass(span.out, span.count, lanes);
  }

  static void FoldNorm(int64_t values, const Memory& memory) {
    double squares = 0;
    for (int64_t block = 1; block <= UpdateBlocks(values); ++block) {
      squares += FoldLanes(memory.numbers + block * kSquareLanes);
    }
    memory.numbers[0] = 1 / (std::sqrt(squares) + kEpsilon);
  }

  // X = `next` / norm, transposed if it is stored with more rows than columns.
  void Normalize(const UpdatePart& part, const Memory& memory) const {
    const float scale = float(memory.numbers[0]);
    const int64_t down = turns_ ? 1 : columns_, along = turns_ ? rows_ : 1;
    for (int64_t i = part.begin; i < part.end; ++i) {
      const float* const from = memory.next + i * down;
      float* const to = memory.x + i * columns_;
      for (int64_t j = 0; j < columns_; ++j) to[j] = scale * from[j * along];
    }
  }

  // One of the three products of one step: X becomes a X + (b A + c A A) X.
  void Step(const UpdatePart& part, const Memory& memory) const {
    const int step = (part.phase - 3) / 3;
    float* const now = step % 2 == 0 ? memory.x : memory.next;
    float* const next = step % 2 == 0 ? memory.next : memory.x;
    switch ((part.phase - 3) % 3) {
      case 0:
        return GramPass({.x = now, .rows = rows_, .columns = columns_, .out = memory.a}, part.begin,
                        part.end);
      case 1:
        return GramPass({.x = memory.a,
                         .rows = rows_,
                         .columns = rows_,
                         .scale = kQuintic,
                         .linear = kCubic,
                         .out = memory.b},
                        part.begin, part.end);
      default:
        return MixPass({.x = now,
                        .rows = rows_,
                        .columns = columns_,
                        .weights = memory.b,
                        .keep = kLinear,
                        .out = next},
                       part.begin, part.end);
    }
  }

  // Transposes the result from `next` into `x`, laid out as the parameter is stored.
  void TurnBack(const UpdatePart& part, const Memory& memory) const {
    for (int64_t i = part.begin; i < part.end; ++i) {
      float* const to = memory.x + i * stored_columns_;
      for (int64_t j = 0; j < stored_columns_; ++j) to[j] = memory.next[j * columns_ + i];
    }
  }

  const MuonOptions options_;
  int64_t stored_rows_ = 0, stored_columns_ = 0;  // of the parameter's values as they are stored
  int64_t rows_ = 0, columns_ = 0;                // of X
  bool turns_ = false;                            // X is what is stored, transposed
  double scale_ = 1;
};

}  // namespace

std::shared_ptr<const ParameterUpdate> MakeUpdate(const OptimizerOptions& options,
                                                  const ParameterSpec& parameter) {
  using Type = OptimizerOptions::Type;
  const std::vector<UpdateState> adam = {{"exp_avg"}, {"exp_avg_sq"}};
  switch (options.type) {
    case Type::kSgd:
      return ByPass(options.sgd.momentum != 0 ? std::vector<UpdateState>{{"momentum_buffer"}}
                                              : std::vector<UpdateState>(),
                    options.sgd, SgdStepOf);
    case Type::kAdamW: return ByPass(adam, options.adamw, AdamStepOf<Decay::kDecoupled>);
    case Type::kAdam: return ByPass(adam, options.adamw, AdamStepOf<Decay::kInGradient>);
    case Type::kLion: return ByPass({{"exp_avg"}}, options.lion, LionStepOf);
    case Type::kAdagrad:
      return ByPass({{"sum", float(options.adagrad.initial_accumulator)}}, options.adagrad,
                    AdagradStepOf);
    case Type::kCustom: return options.custom;
    case Type::kLamb: return std::make_shared<LambUpdate>(options.lamb);
    case Type::kMuon: return std::make_shared<MuonUpdate>(options.muon, parameter);
  }
  RZ_CHECK(false, "optimizer type without an update");
  return nullptr;
}

}  // namespace ringzero
