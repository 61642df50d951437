// ElementwiseUpdate: what one update makes of each value, whatever stage and worker it lies on.
//
//   std::shared_ptr<const ElementwiseUpdate> update = MakeUpdate(options);
//   update->Pass({.rate = 1e-3, .updates = 1, .divisor = 8}, span);
//
// One's own, without touching the engine: a struct with the names of its states and a call operator
// for one value.
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
//
// Elementwise: a value depends on nothing but itself, so any cut into stages and blocks gives the
// same bits. Without state of its own, and so thread-safe.
#ifndef RINGZERO_ZERO_UPDATE_ELEMENTWISE_UPDATE_H_
#define RINGZERO_ZERO_UPDATE_ELEMENTWISE_UPDATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "zero/update/narrow_kernels.h"
#include "zero/update/parameter_update.h"

namespace ringzero {

class ElementwiseUpdate : public ParameterUpdate {
 public:
  // A part of the parameter.
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

// See above. As fast as the compiler makes the loop.
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
        span.out[i] = rule_(moment, span.theta[i], gradient, state);
        for (size_t s = 0; s < kCount; ++s) states[s][i] = state[s];
      }
      if (span.wire_type != WireType::kNone) {
        NarrowPass(span.wire_type, span.out, span.wire, span.count);
      }
    }

   private:
    const Rule rule_;
  };
  return std::make_shared<const Update>(std::move(rule));
}

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_ELEMENTWISE_UPDATE_H_
