// One value after the other. torch's add with a factor rounds once, so it is an fma here; a product
// and a sum that torch does one after the other are two.
#include "zero/update/reference.h"

#include <cmath>
#include <cstring>

namespace ringzero::reference {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint16_t ToBf16(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t ToFp16(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return uint16_t(sign | 0x7e00);   // NaN
  if (size >= 0x47800000) return uint16_t(sign | 0x7c00);  // from 65536 on: infinite
  if (size < 0x38800000) {
    // Below 2^-14 a step is 2^-24, as fp32's is at 0.5.
    float value;
    std::memcpy(&value, &size, sizeof(value));
    return uint16_t(sign | (BitsOf(value + 0.5f) - BitsOf(0.5f)));
  }
  // The exponent's bias is 15 instead of 127, and 13 bits of the mantissa go.
  const uint32_t rebased = size - ((127u - 15u) << 23);
  return uint16_t(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
}

// The new value, in all forms. It may lie where the old one does.
void Write(const UpdateSpan& span, int64_t i, float value) {
  const float before = span.theta[i];
  span.out[i] = value;
  if (span.predicted != nullptr) {
    span.predicted[i] = std::fma(span.momentum, value - before, value);
  }
  if (span.wire_type != WireType::kNone) span.wire[i] = ToWire(span.wire_type, value);
}

}  // namespace

uint16_t ToWire(WireType type, float value) {
  return type == WireType::kBf16 ? ToBf16(BitsOf(value)) : ToFp16(BitsOf(value));
}

void SgdPass(const SgdStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i];
    float g = span.sum[i] / step.divisor * step.clip;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, theta, g);
    if (step.has_momentum) {
      const float buffer =
          step.first_time ? g : std::fma(step.undamped, g, span.first[i] * step.momentum);
      span.first[i] = buffer;
      g = step.nesterov ? std::fma(step.momentum, buffer, g) : buffer;
    }
    Write(span, i, std::fma(-step.rate, g, theta));
  }
}

void AdamPass(const AdamStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i] * step.keep;
    float g = span.sum[i] / step.divisor * step.clip;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, span.theta[i], g);
    const float m = std::fma(step.one_minus_beta1, g, span.first[i] * step.beta1);
    const float v = std::fma(step.one_minus_beta2 * g, g, span.second[i] * step.beta2);
    span.first[i] = m;
    span.second[i] = v;
    const float denominator = std::sqrt(v) / step.root_correction2 + step.epsilon;
    Write(span, i, theta - step.step_size * m / denominator);
  }
}

void LionPass(const LionStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor * step.clip;
    const float m = span.first[i];
    const float direction = std::fma(step.one_minus_beta1, g, m * step.beta1);
    const bool moves = std::abs(direction) >= step.least;
    const float moved = moves ? std::copysign(step.rate, direction) : direction;
    span.first[i] = std::fma(step.one_minus_beta2, g, m * step.beta2);
    Write(span, i, span.theta[i] * step.keep - moved);
  }
}

void AdagradPass(const AdagradStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i];
    float g = span.sum[i] / step.divisor * step.clip;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, theta, g);
    const float squares = std::fma(g, g, span.first[i]);
    span.first[i] = squares;
    Write(span, i, theta - step.rate * g / (std::sqrt(squares) + step.epsilon));
  }
}

void LambMomentsPass(const LambStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor * step.clip;
    span.first[i] = std::fma(step.one_minus_beta1, g, span.first[i] * step.beta1);
    span.second[i] = std::fma(step.one_minus_beta2 * g, g, span.second[i] * step.beta2);
  }
  reference::LambDirectionPass(step, span);
}

void LambDirectionPass(const LambStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float m = span.first[i] / step.correction1;
    const float v = span.second[i] / step.correction2;
    span.out[i] = std::fma(step.weight_decay, span.theta[i], m / (std::sqrt(v) + step.epsilon));
  }
}

void MuonMomentPass(const MuonStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor * step.clip;
    const float m = std::fma(step.one_minus_momentum, g - span.first[i], span.first[i]);
    span.first[i] = m;
    span.out[i] = std::fma(-step.one_minus_momentum, m - g, m);
  }
}

void MovePass(const MoveStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    Write(span, i, std::fma(-step.rate, span.sum[i], span.theta[i] * step.keep));
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
