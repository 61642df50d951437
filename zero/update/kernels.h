// Kernels: the passes over memory that updates and sums are made of.
//
//   UpdatePass(AdamStep{.divisor = 8, .keep = …}, {.theta = θ, .sum = Σ, .out = θ', .first = m,
//                                                  .second = v, .count = n});
//   AddPass(sum, gradient, n);
//   NarrowPass(WireType::kBf16, masters, version, n);          // to nearest, ties to even
//   AddRoundedPass({key, stream}, 0, sum, gradient, sum, n);   // bf16 += fp32, stochastically
//
// Each reads and writes every value once, with the widest vectors that this processor has (Highway:
// AVX-512, AVX2, NEON, chosen at run time). The bits depend neither on that choice nor on lengths
// and addresses: every value goes through the same operations in the same order (formulas.h), and a
// fused multiply-add rounds once everywhere. Formulas: torch.optim's, single tensor, fp32; Lion's
// and LAMB's as optimizer_options.h says. 16-bit values are bits in a uint16_t.
//
// Thread-safe for spans that do not overlap. `out` may be `theta`; otherwise nothing overlaps.
#ifndef RINGZERO_ZERO_UPDATE_KERNELS_H_
#define RINGZERO_ZERO_UPDATE_KERNELS_H_

#include <cstdint>
#include <variant>

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

// The numbers of one update, each computed in double and rounded once. kStates: how many of a
// span's states it has.
struct SgdStep {
  static constexpr int kStates = 1;  // without momentum none
  float divisor = 1;                 // N·K: gradient = sum / divisor · clip
  float clip = 1;                    // of the gradient's norm; 1 changes no bit
  float weight_decay = 0;
  float momentum = 0;
  float undamped = 1;  // 1 - dampening
  float rate = 0;
  bool has_momentum = false;
  bool first_time = false;  // the buffer becomes the gradient
  bool nesterov = false;
};

struct AdamStep {
  static constexpr int kStates = 2;
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
  static constexpr int kStates = 1;
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
  static constexpr int kStates = 1;
  float divisor = 1;
  float clip = 1;
  float weight_decay = 0;
  float epsilon = 0;
  float rate = 0;  // lr / (1 + (updates - 1) · lr_decay)
};

// The first phase of LAMB: out = its update, moments over their corrections, and the decay.
struct LambStep {
  static constexpr int kStates = 2;
  bool takes_gradient = true;  // into the moments, before; else `sum` is not read
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

// Nesterov's momentum: first += (1 - β) · (g - first), and out is as far beyond it. No `theta`.
struct MuonStep {
  static constexpr int kStates = 1;
  float divisor = 1;
  float clip = 1;
  float one_minus_momentum = 1;
};

// The last phase: out = keep · θ - rate · sum.
struct MoveStep {
  static constexpr int kStates = 0;
  float keep = 1;  // 1 - rate · decay
  float rate = 0;
};

using UpdateStep =
    std::variant<SgdStep, AdamStep, LionStep, AdagradStep, LambStep, MuonStep, MoveStep>;

// LambStep's and MuonStep's `out` is read again soon, and no version: no wire copy, no prediction.
void UpdatePass(const UpdateStep& step, const UpdateSpan& span);

// sum[i] += gradient[i].
void AddPass(float* sum, const float* gradient, int64_t count);

// Adds the squares of `values` to `lanes`, value i to lane i % kSquareLanes, in double.
inline constexpr int64_t kSquareLanes = 16;
void SquaresPass(const float* values, int64_t count, double* lanes);
// The lanes' sum, in their order.
double FoldLanes(const double* lanes);

// out[i] = values[i], exactly. `type` is not kNone, here and below.
void WidenPass(WireType type, const uint16_t* values, float* out, int64_t count);
// out[i] = values[i], rounded to nearest, ties to even; NaN stays NaN.
void NarrowPass(WireType type, const float* values, uint16_t* out, int64_t count);
// sum[i] += values[i], in fp32.
void AddNarrowPass(WireType type, float* sum, const uint16_t* values, int64_t count);

// Which random numbers round a parameter's values in one micro-batch (base/philox.h).
struct RoundingKey {
  uint64_t key = 0;
  uint64_t stream = 0;
};

// out[i] = fp32(sum[i]) + gradient[i], rounded to bf16: up with the probability of what truncation
// would drop. Null `sum`: the gradient alone is rounded. `first` is the position of value 0 in its
// parameter, below 2^35: 16 random bits for position p are half (p % 2) of word (p % 8) / 2 of
// block p / 8, so that blocks do not matter. Infinity and NaN stay. `out` may be `sum`.
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count);

// "AVX3" for AVX-512, "AVX2", "NEON": what the passes run with here.
const char* KernelTarget();

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_KERNELS_H_
