// ValueType: how a value is kept and travels; Precision: which type has what in a run.
//
//   Precision precision{.compute = ValueType::kBf16, .parameters = ValueType::kBf16};
//   SizeOf(precision.parameters);   // 2
//
// Values.
#ifndef RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_
#define RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_

#include <cstdint>

#include "zero/update/kernels.h"

namespace ringzero {

enum class ValueType { kFp32, kBf16, kFp16 };

constexpr int64_t SizeOf(ValueType type) { return type == ValueType::kFp32 ? 4 : 2; }

constexpr const char* ToString(ValueType type) {
  return type == ValueType::kFp32 ? "fp32" : type == ValueType::kBf16 ? "bf16" : "fp16";
}

// What an update writes besides the masters.
constexpr WireType WireTypeOf(ValueType type) {
  return type == ValueType::kFp32   ? WireType::kNone
         : type == ValueType::kBf16 ? WireType::kBf16
                                    : WireType::kFp16;
}

struct Precision {
  ValueType compute = ValueType::kFp32;     // parameters and activations where layers run
  ValueType parameters = ValueType::kFp32;  // versions as they travel; masters are fp32
  ValueType sums = ValueType::kFp32;        // as they travel; kBf16: rounded stochastically
  double loss_scale = 1;                    // the loss's gradient is this many times as large
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_VALUE_TYPE_H_
