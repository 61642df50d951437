// Each product is compiled once per target, by Highway, as in kernels.cc.
#include "zero/update/matrix_kernels.h"

#include <cmath>

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zero/update/matrix_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ringzero {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Vectors without a fused multiply-add (SSE, plain lanes) change bits: there values go one by one.
constexpr bool kVectors = HWY_NATIVE_FMA;
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kParts = kDotLanes / kWidth;  // vectors in the sums of one dot product
static_assert(kParts * kWidth == kDotLanes, "a vector is a part of a dot product's sums");

// Dot products of row i of x with kRows rows of x, from row j on.
template <int kRows>
void Dots(const GramStep& step, int64_t i, int64_t j) {
  const D d;
  const float* const a = step.x + i * step.columns;
  V sums[kRows][kParts];
  for (auto& row : sums) {
    for (V& sum : row) sum = hn::Zero(d);
  }
  int64_t k = 0;
  for (; kVectors && k + kDotLanes <= step.columns; k += kDotLanes) {
    for (int64_t part = 0; part < kParts; ++part) {
      const V left = hn::LoadU(d, a + k + part * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const float* const b = step.x + (j + r) * step.columns;
        sums[r][part] = hn::MulAdd(left, hn::LoadU(d, b + k + part * kWidth), sums[r][part]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float* const b = step.x + (j + r) * step.columns;
    HWY_ALIGN float lanes[kDotLanes];
    for (int64_t part = 0; part < kParts; ++part) {
      hn::Store(sums[r][part], d, lanes + part * kWidth);
    }
    for (int64_t rest = k; rest < step.columns; ++rest) {
      float& lane = lanes[rest % kDotLanes];
      lane = std::fma(a[rest], b[rest], lane);
    }
    float dot = 0;
    for (const float lane : lanes) dot += lane;
    const float added = step.linear != 0 ? step.linear * a[j + r] : 0;
    step.out[i * step.rows + j + r] = std::fma(step.scale, dot, added);
  }
}

void GramTarget(const GramStep& step, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  for (int64_t i = begin; i < end; ++i) {
    int64_t j = 0;
    for (; j + kRows <= step.rows; j += kRows) Dots<kRows>(step, i, j);
    for (; j < step.rows; ++j) Dots<1>(step, i, j);
  }
}

// kRows rows of the result from `i` on, kTile vectors of columns from `j` on.
template <int kRows, int kTile>
void MixTile(const MixStep& step, int64_t i, int64_t j) {
  const D d;
  const V keep = hn::Set(d, step.keep);
  V values[kRows][kTile];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTile; ++v) {
      const float* const x = step.x + (i + r) * step.columns + j + v * kWidth;
      values[r][v] = hn::Mul(keep, hn::LoadU(d, x));
    }
  }
  for (int64_t k = 0; k < step.rows; ++k) {
    for (int v = 0; v < kTile; ++v) {
      const V x = hn::LoadU(d, step.x + k * step.columns + j + v * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const V weight = hn::Set(d, step.weights[(i + r) * step.rows + k]);
        values[r][v] = hn::MulAdd(weight, x, values[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kTile; ++v) {
      hn::StoreU(values[r][v], d, step.out + (i + r) * step.columns + j + v * kWidth);
    }
  }
}

template <int kRows>
void MixRows(const MixStep& step, int64_t i) {
  constexpr int kTile = 2;
  int64_t j = 0;
  for (; kVectors && j + kTile * kWidth <= step.columns; j += kTile * kWidth) {
    MixTile<kRows, kTile>(step, i, j);
  }
  for (; kVectors && j + kWidth <= step.columns; j += kWidth) MixTile<kRows, 1>(step, i, j);
  for (; j < step.columns; ++j) {
    for (int64_t row = i; row < i + kRows; ++row) {
      float value = step.keep * step.x[row * step.columns + j];
      for (int64_t k = 0; k < step.rows; ++k) {
        value = std::fma(step.weights[row * step.rows + k], step.x[k * step.columns + j], value);
      }
      step.out[row * step.columns + j] = value;
    }
  }
}

void MixTarget(const MixStep& step, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  int64_t i = begin;
  for (; i + kRows <= end; i += kRows) MixRows<kRows>(step, i);
  for (; i < end; ++i) MixRows<1>(step, i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ringzero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringzero {

HWY_EXPORT(GramTarget);
HWY_EXPORT(MixTarget);

void GramPass(const GramStep& step, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GramTarget)(step, begin, end);
}
void MixPass(const MixStep& step, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MixTarget)(step, begin, end);
}

}  // namespace ringzero
#endif
