// The passes of kernels.h as plain loops, a value at a time: what the kernels are held against, and
// the shortest way to read what an update computes.
//
//   reference::AdamPass(step, span);   // the same bits as AdamPass(step, span)
#ifndef RINGZERO_ZERO_UPDATE_REFERENCE_H_
#define RINGZERO_ZERO_UPDATE_REFERENCE_H_

#include <cstdint>

#include "zero/update/kernels.h"

namespace ringzero::reference {

void SgdPass(const SgdStep& step, const UpdateSpan& span);
void AdamPass(const AdamStep& step, const UpdateSpan& span);
void LionPass(const LionStep& step, const UpdateSpan& span);
void AdagradPass(const AdagradStep& step, const UpdateSpan& span);
void LambMomentsPass(const LambStep& step, const UpdateSpan& span);
void LambDirectionPass(const LambStep& step, const UpdateSpan& span);
void MuonMomentPass(const MuonStep& step, const UpdateSpan& span);
void MovePass(const MoveStep& step, const UpdateSpan& span);
// One value in a wire type, rounded to nearest, ties to even; NaN stays NaN.
uint16_t ToWire(WireType type, float value);
void AddPass(float* sum, const float* gradient, int64_t count);
void SquaresPass(const float* values, int64_t count, double* lanes);

}  // namespace ringzero::reference

#endif  // RINGZERO_ZERO_UPDATE_REFERENCE_H_
