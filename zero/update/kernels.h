// Kernels: the passes over memory that updates and sums are made of.
//
//   AdamPass({.divisor = 8, .keep = …}, {.theta = θ, .sum = Σ, .out = θ', .first = m, .second = v,
//                                         .count = n});
//   AddPass(sum, gradient, n);
//
// Each reads and writes every value once, with the widest vectors that this processor has (Highway:
// AVX-512, AVX2, NEON, chosen at run time). The bits do not depend on that choice: every value goes
// through the same operations in the same order, a fused multiply-add rounds once everywhere, and
// reference.h, a plain loop for each pass, gives the same. Formulas: torch.optim's, single
// tensor, fp32; Lion's and LAMB's as optimizer_options.h says.
//
// Thread-safe for spans that do not overlap. `out` may be `theta`; otherwise nothing overlaps.
#ifndef RINGZERO_ZERO_UPDATE_KERNELS_H_
#define RINGZERO_ZERO_UPDATE_KERNELS_H_

#include <cstdint>

namespace ringzero {

// How a new version is written besides, rounded to nearest, ties to even: what travels.
enum class WireType { kNone, kBf16, kFp16 };

// Values of one parameter, or a part of it. fp32.
struct UpdateSpan {
  const float* theta = nullptr;  // θ_t
  const float* sum = nullptr;    // of gradients, undivided
  float* out = nullptr;          // θ_{t+1}
  float* first = nullptr;        // momentum, exp_avg or sum of squares; null: none
  float* second = nullptr;       // exp_avg_sq; null: none
  uint16_t* wire = nullptr;      // `out` in this type; kNone: none
  WireType wire_type = WireType::kNone;
  // θ_{t+1} + momentum · (θ_{t+1} - θ_t), the difference rounded, then one fma: what stands in for
  // θ_{t+2} until that is there; null: none. Updates of one's own write none.
  float* predicted = nullptr;
  float momentum = 0;
  int64_t count = 0;
};

// The numbers of one update, each computed in double and rounded once.
struct SgdStep {
  float divisor = 1;  // N·K: gradient = sum / divisor · clip
  float clip = 1;     // of the gradient's norm; 1 changes no bit
  float weight_decay = 0;
  float momentum = 0;
  float undamped = 1;  // 1 - dampening
  float rate = 0;
  bool has_momentum = false;
  bool first_time = false;  // the buffer becomes the gradient
  bool nesterov = false;
};

struct AdamStep {
  float divisor = 1;
  float clip = 1;
  float keep = 1;          // 1 - rate · decay: decoupled weight decay (AdamW)
  float weight_decay = 0;  // added to the gradient (Adam with L2); not both
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
  float root_correction2 = 1;  // sqrt(1 - beta2^updates)
  float epsilon = 0;
  float step_size = 0;  // rate / (1 - beta1^updates)
};

struct LionStep {
  float divisor = 1;
  float clip = 1;
  float keep = 1;  // 1 - rate · decay
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
  float rate = 0;
  // A direction whose size is below this moves nothing: 0, or the smallest float. A NaN stays one.
  float least = 0;
};

struct AdagradStep {
  float divisor = 1;
  float clip = 1;
  float weight_decay = 0;
  float epsilon = 0;
  float rate = 0;  // lr / (1 + (updates - 1) · lr_decay)
};

struct LambStep {
  float divisor = 1;
  float clip = 1;
  float weight_decay = 0;
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
  float correction1 = 1;  // 1 - beta1^updates; 1 where the rate is corrected instead
  float correction2 = 1;
  float epsilon = 0;
};

struct MuonStep {
  float divisor = 1;
  float clip = 1;
  float one_minus_momentum = 1;
};

struct MoveStep {
  float keep = 1;  // 1 - rate · decay
  float rate = 0;
};

void SgdPass(const SgdStep& step, const UpdateSpan& span);
void AdamPass(const AdamStep& step, const UpdateSpan& span);
void LionPass(const LionStep& step, const UpdateSpan& span);
void AdagradPass(const AdagradStep& step, const UpdateSpan& span);

// What updates in phases are made of (phased_updates.h). `out` is read again soon, and no version:
// no wire copy.
//
// The moments take the gradient in; out = LAMB's update: moments over their corrections, and the
// decay.
void LambMomentsPass(const LambStep& step, const UpdateSpan& span);
// The same `out` once more, from moments that have the gradient. `sum` is not read.
void LambDirectionPass(const LambStep& step, const UpdateSpan& span);
// Nesterov's momentum: first += (1 - β) · (g - first), and out is as far beyond it. No `theta`.
void MuonMomentPass(const MuonStep& step, const UpdateSpan& span);
// out = keep · θ - rate · sum: the last phase, as the passes above.
void MovePass(const MoveStep& step, const UpdateSpan& span);

// sum[i] += gradient[i].
void AddPass(float* sum, const float* gradient, int64_t count);

// Adds the squares of `values` to `lanes`, value i to lane i % kSquareLanes, in double.
inline constexpr int64_t kSquareLanes = 16;
void SquaresPass(const float* values, int64_t count, double* lanes);
// The lanes' sum, in their order.
double FoldLanes(const double* lanes);

// "AVX3" for AVX-512, "AVX2", "NEON": what the passes run with here.
const char* KernelTarget();

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_KERNELS_H_
