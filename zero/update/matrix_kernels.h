// Products of matrices, by rows: what Muon's steps are made of.
//
//   // A = X Xᵀ
//   GramPass({.x = X, .rows = n, .columns = m, .out = A}, 0, n);
//   // Y = a X + B X
//   MixPass({.x = X, .rows = n, .columns = m, .weights = B, .keep = a, .out = Y}, 0, n);
//
// Matrices are row-major, dense, fp32. A call computes rows [begin, end) of the result; calls with
// different ranges may run at once. The bits depend neither on the range nor on the processor
// (kernels.h): a dot product has kDotLanes sums, term k in sum k % kDotLanes, each term one fused
// multiply-add, the sums added in order; a mixed value takes its terms in the order of the rows.
// Thread-safe for results that do not overlap; `out` overlaps nothing that is read.
#ifndef RINGZERO_ZERO_UPDATE_MATRIX_KERNELS_H_
#define RINGZERO_ZERO_UPDATE_MATRIX_KERNELS_H_

#include <cstdint>

namespace ringzero {

inline constexpr int64_t kDotLanes = 16;

// out[i][j] = scale · <row i of x, row j of x> + linear · x[i][j]. If linear is not 0, x
// is square. With the defaults, out is x xᵀ.
struct GramStep {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float scale = 1;
  float linear = 0;
  float* out = nullptr;  // rows by rows
};

// out[i] = keep · x[i] + Σ_k weights[i][k] · x[k].
struct MixStep {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  const float* weights = nullptr;  // rows by rows
  float keep = 0;
  float* out = nullptr;  // rows by columns
};

void GramPass(const GramStep& step, int64_t begin, int64_t end);
void MixPass(const MixStep& step, int64_t begin, int64_t end);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_MATRIX_KERNELS_H_
