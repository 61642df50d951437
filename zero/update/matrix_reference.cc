// The products of matrix_kernels.h as plain loops.
#include <cmath>

#include "zero/update/matrix_kernels.h"

namespace ringzero::reference {

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
