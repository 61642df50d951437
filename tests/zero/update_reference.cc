// One value after the other. torch's add with a factor rounds once, so it is an fma here; a product
// and a sum that torch does one after the other are two.
#include "tests/zero/update_reference.h"

#include <cmath>
#include <cstring>

#include "base/philox.h"

namespace ringzero::reference {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float FromFp16(uint16_t value) {
  const uint32_t sign = uint32_t{value & 0x8000u} << 16, size = value & 0x7fff;
  // Below 2^-14 a step is 2^-24.
  const float magnitude = size < 0x400 ? std::ldexp(static_cast<float>(size), -24)
                          : size < 0x7c00
                              ? FromBits((size << 13) + ((127u - 15u) << 23))
                              : FromBits(0x7f800000 | ((size & 0x3ff) << 13));  // infinity, NaN
  return FromBits(BitsOf(magnitude) | sign);
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
    return uint16_t(sign | (BitsOf(FromBits(size) + 0.5f) - BitsOf(0.5f)));
  }
  // The exponent's bias is 15 instead of 127, and 13 bits of the mantissa go.
  const uint32_t rebased = size - ((127u - 15u) << 23);
  return uint16_t(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
}

uint16_t RandomBits(const RoundingKey& key, uint64_t position) {
  const PhiloxBlock block = PhiloxAt(key.key, key.stream, position / 8);
  return static_cast<uint16_t>(block[position % 8 / 2] >> (position % 2 * 16));
}

// The new value, in all forms. It may lie where the old one does.
void Write(const UpdateSpan& span, int64_t i, float value) {
  const float before = span.theta[i];
  span.out[i] = value;
  const float guess = std::fma(span.factor, value - before, value);
  if (span.predicted != nullptr && span.wire_type == ValueType::kFp32) {
    static_cast<float*>(span.predicted)[i] = guess;
  } else if (span.predicted != nullptr) {
    static_cast<uint16_t*>(span.predicted)[i] = ToWire(span.wire_type, guess);
  }
  if (span.wire_type != ValueType::kFp32) span.wire[i] = ToWire(span.wire_type, value);
}

void Update(const SgdStep& step, const UpdateSpan& span) {
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

void Update(const AdamStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i] * step.keep;
    float g = span.sum[i] / step.divisor * step.clip;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, span.theta[i], g);
    const float m = std::fma(step.betas.one_minus_beta1, g, span.first[i] * step.betas.beta1);
    const float v = std::fma(step.betas.one_minus_beta2 * g, g, span.second[i] * step.betas.beta2);
    span.first[i] = m;
    span.second[i] = v;
    const float denominator = std::sqrt(v) / step.root_correction2 + step.epsilon;
    Write(span, i, theta - step.step_size * m / denominator);
  }
}

void Update(const LionStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor * step.clip;
    const float m = span.first[i];
    const float direction = std::fma(step.betas.one_minus_beta1, g, m * step.betas.beta1);
    const bool moves = std::abs(direction) >= step.least;
    const float moved = moves ? std::copysign(step.rate, direction) : direction;
    span.first[i] = std::fma(step.betas.one_minus_beta2, g, m * step.betas.beta2);
    Write(span, i, span.theta[i] * step.keep - moved);
  }
}

void Update(const AdagradStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float theta = span.theta[i];
    float g = span.sum[i] / step.divisor * step.clip;
    if (step.weight_decay != 0) g = std::fma(step.weight_decay, theta, g);
    const float squares = std::fma(g, g, span.first[i]);
    span.first[i] = squares;
    Write(span, i, theta - step.rate * g / (std::sqrt(squares) + step.epsilon));
  }
}

void Update(const LambStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    if (step.takes_gradient) {
      const float g = span.sum[i] / step.divisor * step.clip;
      span.first[i] = std::fma(step.betas.one_minus_beta1, g, span.first[i] * step.betas.beta1);
      span.second[i] =
          std::fma(step.betas.one_minus_beta2 * g, g, span.second[i] * step.betas.beta2);
    }
    const float m = span.first[i] / step.correction1;
    const float v = span.second[i] / step.correction2;
    span.out[i] = std::fma(step.weight_decay, span.theta[i], m / (std::sqrt(v) + step.epsilon));
  }
}

void Update(const MuonStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    const float g = span.sum[i] / step.divisor * step.clip;
    const float m = std::fma(step.one_minus_momentum, g - span.first[i], span.first[i]);
    span.first[i] = m;
    span.out[i] = std::fma(-step.one_minus_momentum, m - g, m);
  }
}

void Update(const MoveStep& step, const UpdateSpan& span) {
  for (int64_t i = 0; i < span.count; ++i) {
    Write(span, i, std::fma(-step.rate, span.sum[i], span.theta[i] * step.keep));
  }
}

}  // namespace

uint16_t ToWire(ValueType type, float value) {
  return type == ValueType::kBf16 ? ToBf16(BitsOf(value)) : ToFp16(BitsOf(value));
}

float FromWire(ValueType type, uint16_t value) {
  return type == ValueType::kBf16 ? FromBits(uint32_t{value} << 16) : FromFp16(value);
}

void UpdatePass(const UpdateStep& step, const UpdateSpan& span) {
  std::visit([&](const auto& one) { Update(one, span); }, step);
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

void WidenPass(ValueType type, const uint16_t* values, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = FromWire(type, values[i]);
}

void NarrowPass(ValueType type, const float* values, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = ToWire(type, values[i]);
}

void AddNarrowPass(ValueType type, float* sum, const uint16_t* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += FromWire(type, values[i]);
}

void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value =
        sum == nullptr ? gradient[i] : FromWire(ValueType::kBf16, sum[i]) + gradient[i];
    const uint32_t bits = BitsOf(value);
    const uint32_t random = RandomBits(key, static_cast<uint64_t>(first + i));
    out[i] = static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : (bits + random) >> 16);
  }
}

void GramPass(const GramStep& step, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < step.rows; ++j) {
      const float* a = step.x + i * step.columns;
      const float* b = step.x + j * step.columns;
      float lanes[kDotLanes] = {};
      for (int64_t k = 0; k < step.columns; ++k) {
        lanes[k % kDotLanes] = std::fma(a[k], b[k], lanes[k % kDotLanes]);
      }
      float dot = 0;
      for (const float lane : lanes) dot += lane;
      const float added = step.linear != 0 ? step.linear * a[j] : 0;
      step.out[i * step.rows + j] = std::fma(step.scale, dot, added);
    }
  }
}

void MixPass(const MixStep& step, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < step.columns; ++j) {
      float value = step.keep * step.x[i * step.columns + j];
      for (int64_t k = 0; k < step.rows; ++k) {
        value = std::fma(step.weights[i * step.rows + k], step.x[k * step.columns + j], value);
      }
      step.out[i * step.columns + j] = value;
    }
  }
}

}  // namespace ringzero::reference
