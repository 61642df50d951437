// One value after the other. torch's add with a factor rounds once, so it is an fma here; a product
// and a sum that torch does one after the other are two.
#include "zero/update/reference.h"

#include <cmath>

namespace ringzero::reference {

void SgdPass(const SgdStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i];
    float g = span.sum[i] / step.divisor;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, theta, g);
    if (step.has_momentum) {
      const float buffer =
          step.first_time ? g : std::fma(step.undamped, g, span.first[i] * step.momentum);
      span.first[i] = buffer;
      g = step.nesterov ? std::fma(step.momentum, buffer, g) : buffer;
    }
    span.out[i] = std::fma(-step.rate, g, theta);
  }
}

void AdamPass(const AdamStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i] * step.keep;
    float g = span.sum[i] / step.divisor;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, span.theta[i], g);
    const float m = std::fma(step.one_minus_beta1, g, span.first[i] * step.beta1);
    const float v = std::fma(step.one_minus_beta2 * g, g, span.second[i] * step.beta2);
    span.first[i] = m;
    span.second[i] = v;
    const float denominator = std::sqrt(v) / step.root_correction2 + step.epsilon;
    span.out[i] = theta - step.step_size * m / denominator;
  }
}

void LionPass(const LionStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor;
    const float m = span.first[i];
    const float direction = std::fma(step.one_minus_beta1, g, m * step.beta1);
    const float moved = direction > 0 ? step.rate : direction < 0 ? -step.rate : direction;
    span.first[i] = std::fma(step.one_minus_beta2, g, m * step.beta2);
    span.out[i] = span.theta[i] * step.keep - moved;
  }
}

void AdagradPass(const AdagradStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i];
    float g = span.sum[i] / step.divisor;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, theta, g);
    const float squares = std::fma(g, g, span.first[i]);
    span.first[i] = squares;
    span.out[i] = theta - step.rate * g / (std::sqrt(squares) + step.epsilon);
  }
}

void AddPass(float* sum, const float* gradient, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += gradient[i];
}

void SquaresPass(const float* values, int64_t count, double* lanes) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    lanes[i % kSquareLanes] += value * value;
  }
}

}  // namespace ringzero::reference
