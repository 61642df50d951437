// ValueType: how a value is kept and travels; Precision: which type has what in a run.
//
//   Precision precision{.compute = ValueType::kBf16};   // layers compute in bf16
//   SizeOf(precision.wire());                           // 2: parameters travel as bf16, too
//
// Value types. Initializers stand in the order of the members: {.compute = …, .sums = …}.
#ifndef RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_
#define RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_

#include <cstdint>
#include <optional>

#include "zero/update/kernels.h"

namespace ringzero {

enum class ValueType { kFp32, kBf16, kFp16 };

constexpr int64_t SizeOf(ValueType type) { return type == ValueType::kFp32 ? 4 : 2; }

constexpr const char* ToString(ValueType type) {
  return type == ValueType::kFp32 ? "fp32" : type == ValueType::kBf16 ? "bf16" : "fp16";
}

// The type that an update writes in addition to the fp32 masters.
constexpr WireType WireTypeOf(ValueType type) {
  return type == ValueType::kFp32   ? WireType::kNone
         : type == ValueType::kBf16 ? WireType::kBf16
                                    : WireType::kFp16;
}

// What the loss's gradients are multiplied by (zero/loss_scale.h).
struct LossScaleOptions {
  double initial = 1;    // fp16.loss_scale, or 2 to the power of fp16.initial_scale_power
  bool dynamic = false;  // fp16.loss_scale is 0; false: the scale stays as it is
  int window = 1000;     // fp16.loss_scale_window: good iterations before the scale doubles
  int hysteresis = 2;    // fp16.hysteresis: which overflow (1, 2, …) halves the scale; < 1: none
  bool consecutive_hysteresis = false;  // a good iteration begins hysteresis' count again
  double minimum = 1;                   // fp16.min_loss_scale
  enum class AtMinimum { kEndsRun, kStays } at_minimum = AtMinimum::kEndsRun;  // an overflow there
};

struct Precision {
  ValueType compute = ValueType::kFp32;  // parameters and activations where layers run
  std::optional<ValueType> parameters;   // versions as they travel; none: as layers compute
  ValueType sums = ValueType::kFp32;     // as they travel; kBf16: rounded stochastically
  LossScaleOptions loss_scale;
  bool skip_overflows = false;  // Plan::skip_overflows

  // The type of versions as they travel; masters are fp32.
  ValueType wire() const { return parameters.value_or(compute); }
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_
