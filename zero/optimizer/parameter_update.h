// ParameterUpdate: one update of one whole parameter, in phases, each cut into blocks.
//
//   for (int phase = 0; …; each of update.Phases(numel))
//     for each block [begin, end) of its items:
//       update.Run({.phase = phase, .begin = begin, .end = end}, moment, whole, scratch);
//
// The blocks of one phase may run in any order and at the same time; the phases run one after the
// other. A block's bits depend on nothing but the parameter, so neither the number of threads nor
// the cut into stages changes them. Most updates are elementwise and have one phase; LAMB needs
// norms first, Muon products of matrices. Has no state of its own, and so is thread-safe.
#ifndef RINGZERO_ZERO_OPTIMIZER_PARAMETER_UPDATE_H_
#define RINGZERO_ZERO_OPTIMIZER_PARAMETER_UPDATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zero/optimizer/arithmetic.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/rate_curve.h"

namespace ringzero {

// The most states that an update may have.
inline constexpr int kMaxUpdateStates = 2;
// Values in a block: 256 KiB.
inline constexpr int64_t kUpdateBlockValues = 64 * 1024;
constexpr int64_t UpdateBlocks(int64_t values) {
  return (values + kUpdateBlockValues - 1) / kUpdateBlockValues;
}

// What is the same for all values of a parameter in one update.
struct UpdateMoment {
  double rate = 0;
  std::optional<UpdateRate::Betas> betas;  // if the rate curve has them; absent: the update's own
  int64_t updates = 1;                     // of this parameter, this update included
  double divisor = 1;                      // N·K
  double loss_scale = 1;                   // what the loss was multiplied by
  float clip = 1;
  // gradient = sum / divides_by() · clip.
  float divides_by() const { return static_cast<float>(divisor * loss_scale); }
};

// One state of an update: fp32, as many values as the parameter has.
struct UpdateState {
  std::string name;   // torch.optim's: "exp_avg"
  float initial = 0;  // before the first update
};

// `items` are values, rows of a matrix, or whatever the phase counts.
struct UpdatePhase {
  int64_t items = 0;
  int64_t block_items = 1;  // in a block; fewer in the last block
};

// Items [begin, end) of a phase.
struct UpdatePart {
  int phase = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class ParameterUpdate {
 public:
  virtual ~ParameterUpdate() = default;
  // At most kMaxUpdateStates. In a span the first state is `first`, the second one `second`.
  const std::vector<UpdateState>& states() const { return states_; }
  // The phases for a parameter of `values` values. The items of the first phase are the values; the
  // last phase writes `out`.
  virtual std::vector<UpdatePhase> Phases(int64_t values) const = 0;
  // Working memory from the first phase to the last, not kept between updates; a multiple of 64.
  virtual int64_t ScratchBytes(int64_t /*values*/) const { return 0; }
  // `whole`: all of the parameter, but whole.sum begins at value part.begin in the first phase
  // and is not there in later phases. A block of the first phase may come in pieces of whole
  // kSquareLanes, one after the other (widened sums). The last phase writes the wire copy and the
  // prediction, too, if `whole` has them. `scratch` begins at a multiple of 64 bytes.
  virtual void Run(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
                   std::byte* scratch) const = 0;

 protected:
  explicit ParameterUpdate(std::vector<UpdateState> states) : states_(std::move(states)) {}

 private:
  const std::vector<UpdateState> states_;
};

// Values [begin, end) of a span.
inline UpdateSpan PartOf(const UpdateSpan& whole, int64_t begin, int64_t end) {
  UpdateSpan part = whole;
  part.theta += begin;
  part.out += begin;
  part.count = end - begin;
  if (part.sum != nullptr) part.sum += begin;
  if (part.first != nullptr) part.first += begin;
  if (part.second != nullptr) part.second += begin;
  if (part.wire != nullptr) part.wire += begin;
  if (part.predicted != nullptr) {
    part.predicted = static_cast<std::byte*>(part.predicted) + begin * SizeOf(part.wire_type);
  }
  return part;
}

// What a ParameterUpdate::Run works on.
inline UpdateSpan BlockOf(const UpdateSpan& whole, const UpdatePart& part) {
  UpdateSpan block = PartOf(whole, part.begin, part.end);
  block.sum = whole.sum;
  return block;
}

// An update that computes each value alone, whatever stage and worker the value lies on. So any cut
// into stages and blocks gives the same bits.
//
// A custom update, without touching the engine: a struct with the names of its states and a call
// operator for one value.
//
//   struct SignMomentum {
//     static constexpr std::array<const char*, 1> kStates = {"momentum"};
//     float beta = 0.9f;
//     float operator()(const UpdateMoment& at, float theta, float gradient,
//                      std::array<float, 1>& state) const {
//       state[0] = beta * state[0] + (1 - beta) * gradient;
//       return theta - static_cast<float>(at.rate) * std::copysign(1.0f, state[0]);
//     }
//   };
//   options.type = OptimizerOptions::Type::kCustom;
//   options.custom = MakeElementwise(SignMomentum{.beta = 0.95f});
class ElementwiseUpdate : public ParameterUpdate {
 public:
  // Updates the values of `span`, a part of the parameter: writes `out`, the wire copy and the
  // prediction, as far as `span` has them.
  virtual void Pass(const UpdateMoment& moment, const UpdateSpan& span) const = 0;

  std::vector<UpdatePhase> Phases(int64_t values) const final {
    return {{.items = values, .block_items = kUpdateBlockValues}};
  }
  void Run(const UpdatePart& part, const UpdateMoment& moment, const UpdateSpan& whole,
           std::byte* /*scratch*/) const final {
    Pass(moment, BlockOf(whole, part));
  }

 protected:
  using ParameterUpdate::ParameterUpdate;
};

// As fast as the compiler makes the loop.
template <class Rule>
std::shared_ptr<const ElementwiseUpdate> MakeElementwise(Rule rule) {
  constexpr size_t kCount = Rule::kStates.size();
  static_assert(kCount <= kMaxUpdateStates, "an update has at most two states");
  class Update final : public ElementwiseUpdate {
   public:
    explicit Update(Rule rule)
        : ElementwiseUpdate([] {
            std::vector<UpdateState> states;
            for (const char* name : Rule::kStates) states.push_back({.name = name});
            return states;
          }()),
          rule_(std::move(rule)) {}
    void Pass(const UpdateMoment& moment, const UpdateSpan& span) const override {
      const std::array<float*, kMaxUpdateStates> states = {span.first, span.second};
      const float divisor = moment.divides_by();
      for (int64_t i = 0; i < span.count; ++i) {
        std::array<float, kCount> state;
        for (size_t s = 0; s < kCount; ++s) state[s] = states[s][i];
        const float gradient = span.sum[i] / divisor * moment.clip;
        const float theta = span.theta[i];
        span.out[i] = rule_(moment, theta, gradient, state);
        if (span.predicted != nullptr) StorePredicted(span, i, theta, span.out[i]);
        for (size_t s = 0; s < kCount; ++s) states[s][i] = state[s];
      }
      if (span.wire_type != ValueType::kFp32) {
        NarrowPass(span.wire_type, span.out, span.wire, span.count);
      }
    }

   private:
    const Rule rule_;
  };
  return std::make_shared<const Update>(std::move(rule));
}

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_PARAMETER_UPDATE_H_
