// The passes of kernels.h as plain loops, a value at a time: what the kernels are held against, and
// the shortest way to read what an update computes. They share no text with the kernels.
//
//   reference::UpdatePass(step, span);   // the same bits as UpdatePass(step, span)
#ifndef RINGZERO_TESTS_ZERO_UPDATE_REFERENCE_H_
#define RINGZERO_TESTS_ZERO_UPDATE_REFERENCE_H_

#include <cstdint>

#include "zero/optimizer/kernels.h"

namespace ringzero::reference {

void UpdatePass(const UpdateStep& step, const UpdateSpan& span);
void AddPass(float* sum, const float* gradient, int64_t count);
void SquaresPass(const float* values, int64_t count, double* lanes);

// One value in a wire type, rounded to nearest, ties to even; NaN stays NaN.
uint16_t ToWire(ValueType type, float value);
float FromWire(ValueType type, uint16_t value);
void WidenPass(ValueType type, const uint16_t* values, float* out, int64_t count);
void NarrowPass(ValueType type, const float* values, uint16_t* out, int64_t count);
void AddNarrowPass(ValueType type, float* sum, const uint16_t* values, int64_t count);
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count);

void GramPass(const GramStep& step, int64_t begin, int64_t end);
void MixPass(const MixStep& step, int64_t begin, int64_t end);

}  // namespace ringzero::reference

#endif  // RINGZERO_TESTS_ZERO_UPDATE_REFERENCE_H_
