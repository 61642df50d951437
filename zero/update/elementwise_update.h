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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zero/rate_curve.h"
#include "zero/update/kernels.h"
#include "zero/update/narrow_kernels.h"

namespace ringzero {

// The most states that an update may have.
inline constexpr int kMaxUpdateStates = 2;

// What is the same for all values of a parameter in one update.
struct UpdateMoment {
  double rate = 0;
  std::optional<UpdateRate::Betas> betas;  // where the rate curve says so; absent: the update's own
  int64_t updates = 1;                     // of this parameter, this one included
  double divisor = 1;                      // N·K
  double loss_scale = 1;                   // of the loss that the gradients are of
  // gradient = sum / this.
  float divides_by() const { return static_cast<float>(divisor * loss_scale); }
};

// fp32, as many values as the parameter has.
struct UpdateState {
  std::string name;   // torch.optim's: "exp_avg"
  float initial = 0;  // before the first update
};

class ElementwiseUpdate {
 public:
  virtual ~ElementwiseUpdate() = default;
  // At most kMaxUpdateStates; in a span the first one is `first`, the other one `second`.
  const std::vector<UpdateState>& states() const { return states_; }
  virtual void Pass(const UpdateMoment& moment, const UpdateSpan& span) const = 0;

 protected:
  explicit ElementwiseUpdate(std::vector<UpdateState> states) : states_(std::move(states)) {}

 private:
  const std::vector<UpdateState> states_;
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
        span.out[i] = rule_(moment, span.theta[i], span.sum[i] / divisor, state);
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
