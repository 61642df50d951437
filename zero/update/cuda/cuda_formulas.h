// The passes for one value, as a GPU's thread computes them; the processor's compiler takes them
// too, so that a test without a GPU holds the same text against the plain loops (reference.h).
//
//   for (int64_t i = first; i < span.count; i += threads) cuda::AdamValue(step, span, i);
//
// The operations of the plain loops in their order. For C++17.
#ifndef RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_
#define RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_

#include <cstdint>

#include "base/philox.h"
#include "zero/update/cuda/cuda_arithmetic.h"
#include "zero/update/cuda/cuda_spans.h"

namespace ringzero::cuda {

// The new value, in all forms. It may lie where the old one does.
RZ_BOTH_SIDES void Write(const UpdateSpan& span, int64_t i, float value) {
  const float before = span.theta[i];
  span.out[i] = value;
  if (span.wire_type != WireType::kNone) span.wire[i] = ToWire(span.wire_type, value);
  if (span.predicted != nullptr) {
    span.predicted[i] = MultiplyAdd(span.momentum, Add(value, -before), value);
  }
}

// The clipped gradient from its sum, with a decay that belongs to it.
template <class Step>
RZ_BOTH_SIDES float GradientOf(const Step& step, float sum, float weight_decay, float theta) {
  const float g = Multiply(Divide(sum, step.divisor), step.clip);
  return weight_decay != 0 ? MultiplyAdd(weight_decay, theta, g) : g;
}

RZ_BOTH_SIDES void SgdValue(const SgdStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  if (step.has_momentum) {
    const float buffer =
        step.first_time ? g : MultiplyAdd(step.undamped, g, Multiply(span.first[i], step.momentum));
    span.first[i] = buffer;
    g = step.nesterov ? MultiplyAdd(step.momentum, buffer, g) : buffer;
  }
  Write(span, i, MultiplyAdd(-step.rate, g, theta));
}

RZ_BOTH_SIDES void AdamValue(const AdamStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  const float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  const float m = MultiplyAdd(step.one_minus_beta1, g, Multiply(span.first[i], step.beta1));
  const float v =
      MultiplyAdd(Multiply(step.one_minus_beta2, g), g, Multiply(span.second[i], step.beta2));
  span.first[i] = m;
  span.second[i] = v;
  const float denominator = Add(Divide(Root(v), step.root_correction2), step.epsilon);
  const float moved = Divide(Multiply(step.step_size, m), denominator);
  Write(span, i, Add(Multiply(theta, step.keep), -moved));
}

RZ_BOTH_SIDES void LionValue(const LionStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i], m = span.first[i];
  const float g = Multiply(Divide(span.sum[i], step.divisor), step.clip);
  const float direction = MultiplyAdd(step.one_minus_beta1, g, Multiply(m, step.beta1));
  const bool moves = direction >= step.least || -direction >= step.least;
  const float moved = moves ? CopySign(step.rate, direction) : direction;
  span.first[i] = MultiplyAdd(step.one_minus_beta2, g, Multiply(m, step.beta2));
  Write(span, i, Add(Multiply(theta, step.keep), -moved));
}

RZ_BOTH_SIDES void AdagradValue(const AdagradStep& step, const UpdateSpan& span, int64_t i) {
  const float theta = span.theta[i];
  const float g = GradientOf(step, span.sum[i], step.weight_decay, theta);
  const float squares = MultiplyAdd(g, g, span.first[i]);
  span.first[i] = squares;
  const float moved = Divide(Multiply(step.rate, g), Add(Root(squares), step.epsilon));
  Write(span, i, Add(theta, -moved));
}

RZ_BOTH_SIDES void AddValue(const AddSpan& span, int64_t i) {
  span.sum[i] = Add(span.sum[i], span.gradient[i]);
}

// How many lanes all blocks together have.
RZ_BOTH_SIDES int64_t SquaresLanes(const SquaresSpan& span) {
  return (span.count + span.block - 1) / span.block * kSquareLanes;
}

// One of them.
RZ_BOTH_SIDES void SquaresLane(const SquaresSpan& span, int64_t lane) {
  const int64_t begin = lane / kSquareLanes * span.block;
  const int64_t end = span.block < span.count - begin ? begin + span.block : span.count;
  double sum = span.lanes[lane];
  for (int64_t i = begin + lane % kSquareLanes; i < end; i += kSquareLanes) {
    sum = AddSquare(sum, span.values[i]);
  }
  span.lanes[lane] = sum;
}

RZ_BOTH_SIDES void WidenValue(const WidenSpan& span, int64_t i) {
  span.out[i] = FromWire(span.type, span.values[i]);
}

RZ_BOTH_SIDES void NarrowValue(const NarrowSpan& span, int64_t i) {
  span.out[i] = ToWire(span.type, span.values[i]);
}

RZ_BOTH_SIDES void AddNarrowValue(const AddNarrowSpan& span, int64_t i) {
  span.sum[i] = Add(span.sum[i], FromWire(span.type, span.gradient[i]));
}

// How many blocks of random numbers the values take, and what the n-th of them rounds: up to 8.
RZ_BOTH_SIDES int64_t RandomBlocks(const AddRoundedSpan& span) {
  return (span.first + span.count + 7) / 8 - span.first / 8;
}
RZ_BOTH_SIDES void AddRoundedBlock(const AddRoundedSpan& span, int64_t n) {
  const int64_t block = span.first / 8 + n;
  const PhiloxBlock random = PhiloxAt(span.key.key, span.key.stream, static_cast<uint64_t>(block));
  for (int at = 0; at < 8; ++at) {
    const int64_t i = block * 8 + at - span.first;
    if (i < 0 || i >= span.count) continue;
    const float gradient = span.gradient[i];
    const float value =
        span.sum == nullptr ? gradient : Add(FromWire(WireType::kBf16, span.sum[i]), gradient);
    const uint32_t bits = BitsOf(value), up = random[at / 2] >> (at % 2 * 16) & 0xffff;
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    span.out[i] = static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : (bits + up) >> 16);
  }
}

}  // namespace ringzero::cuda

#endif  // RINGZERO_ZERO_UPDATE_CUDA_CUDA_FORMULAS_H_
