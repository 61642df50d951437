// Kernels: the passes over memory that updates and sums are made of.
//
//   UpdatePass(AdamStep{.divisor = 8, .keep = …}, {.theta = θ, .sum = Σ, .out = θ', .first = m,
//                                                  .second = v, .count = n});
//   AddPass(sum, gradient, n);
//   NarrowPass(ValueType::kBf16, masters, version, n);          // to nearest, ties to even
//   AddRoundedPass({key, stream}, 0, sum, gradient, sum, n);   // bf16 += fp32, stochastically
//
// Each pass reads and writes every value once, with the widest vectors of this processor (Highway:
// AVX-512, AVX2, NEON, chosen at run time). The bits depend neither on the vectors nor on lengths
// and addresses: every value goes through the same operations in the same order (formulas.h), and a
// fused multiply-add rounds once everywhere. Formulas: torch.optim's, single tensor, fp32; Lion's
// and LAMB's as optimizer_options.h says. 16-bit values are bits in a uint16_t.
//
// Thread-safe for spans that do not overlap. `out` may be `theta`; otherwise nothing overlaps.
#ifndef RINGZERO_ZERO_OPTIMIZER_KERNELS_H_
#define RINGZERO_ZERO_OPTIMIZER_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <variant>

namespace ringzero {

// How a value is kept and travels.
enum class ValueType { kFp32, kBf16, kFp16 };

constexpr int64_t SizeOf(ValueType type) { return type == ValueType::kFp32 ? 4 : 2; }

constexpr const char* ToString(ValueType type) {
  return type == ValueType::kFp32 ? "fp32" : type == ValueType::kBf16 ? "bf16" : "fp16";
}

// Values of one parameter, or a part of it. fp32.
struct UpdateSpan {
  const float* theta = nullptr;  // θ_t
  const float* sum = nullptr;    // of gradients, undivided
  float* out = nullptr;          // θ_{t+1}
  float* first = nullptr;        // momentum, exp_avg or sum of squares; null: none
  float* second = nullptr;       // exp_avg_sq; null: none
  // The copy of `out` that travels, rounded to nearest, ties to even. kFp32: none, `out` travels.
  uint16_t* wire = nullptr;
  ValueType wire_type = ValueType::kFp32;
  // Predicts θ_{t+2}: θ_{t+1} + factor · (θ_{t+1} - θ_t), the difference rounded, then one fma. As
  // it travels: floats, or values of wire_type, rounded as the wire. Stands in for θ_{t+2} until
  // θ_{t+2} is there. Null: none.
  void* predicted = nullptr;
  float factor = 0;
  int64_t count = 0;
};

// The numbers of one update, each computed in double and rounded once. kStates: how many of a
// span's states the step uses.
struct SgdStep {
  static constexpr int kStates = 1;  // 0 without momentum
  float divisor = 1;                 // N·K: gradient = sum / divisor · clip
  float clip = 1;                    // limits the gradient's norm; 1 changes no bit
  float weight_decay = 0;
  float momentum = 0;
  float undamped = 1;  // 1 - dampening
  float rate = 0;
  bool has_momentum = false;
  bool first_time = false;  // the momentum becomes the gradient
  bool nesterov = false;
};

// What two moments keep, and take of a gradient.
struct MomentWeights {
  float beta1 = 0;
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;
};

struct AdamStep {
  static constexpr int kStates = 2;
  float divisor = 1;
  float clip = 1;
  float keep = 1;          // 1 - rate · decay: decoupled weight decay (AdamW)
  float weight_decay = 0;  // added to the gradient (Adam with L2), in place of keep
  MomentWeights betas;
  float root_correction2 = 1;  // sqrt(1 - beta2^updates)
  float epsilon = 0;
  float step_size = 0;  // rate / (1 - beta1^updates)
};

struct LionStep {
  static constexpr int kStates = 1;
  float divisor = 1;
  float clip = 1;
  float keep = 1;  // 1 - rate · decay
  MomentWeights betas;
  float rate = 0;
  // A direction of a smaller size moves nothing: 0, or the smallest float. A NaN stays a NaN.
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

// LAMB's first phase: out = the update before the trust ratio, of corrected moments and decay.
struct LambStep {
  static constexpr int kStates = 2;
  bool takes_gradient = true;  // first into the moments; false: `sum` is not read
  float divisor = 1;
  float clip = 1;
  float weight_decay = 0;
  MomentWeights betas;
  float correction1 = 1;  // 1 - beta1^updates; 1 where the rate is corrected instead
  float correction2 = 1;
  float epsilon = 0;
};

// Nesterov's momentum: first += (1-β)·(g - first), then out = first + (1-β)·(g - first). No θ.
struct MuonStep {
  static constexpr int kStates = 1;
  float divisor = 1;
  float clip = 1;
  float one_minus_momentum = 1;
};

// The last phase of LAMB and Muon: out = keep · θ - rate · sum.
struct MoveStep {
  static constexpr int kStates = 0;
  float keep = 1;  // 1 - rate · decay
  float rate = 0;
};

using UpdateStep =
    std::variant<SgdStep, AdamStep, LionStep, AdagradStep, LambStep, MuonStep, MoveStep>;

// `out` of LambStep and MuonStep is no version, and read again soon: no wire copy, no prediction.
void UpdatePass(const UpdateStep& step, const UpdateSpan& span);

// sum[i] += gradient[i].
void AddPass(float* sum, const float* gradient, int64_t count);

// Adds the squares of `values` to `lanes`, value i to lane i % kSquareLanes, in double.
inline constexpr int64_t kSquareLanes = 16;
void SquaresPass(const float* values, int64_t count, double* lanes);
// The lanes' sum, in their order.
double FoldLanes(const double* lanes);

// out[i] = values[i], exactly. `type` is not kFp32, here and below.
void WidenPass(ValueType type, const uint16_t* values, float* out, int64_t count);
// out[i] = values[i], rounded to nearest, ties to even; NaN stays NaN.
void NarrowPass(ValueType type, const float* values, uint16_t* out, int64_t count);
// sum[i] += values[i], in fp32.
void AddNarrowPass(ValueType type, float* sum, const uint16_t* values, int64_t count);

// Which random numbers round a parameter's values in one micro-batch (base/philox.h).
struct RoundingKey {
  uint64_t key = 0;
  uint64_t stream = 0;
};

// out[i] = fp32(sum[i]) + gradient[i], rounded to bf16: up with the probability of what truncation
// would drop. Null `sum`: the gradient alone is rounded. `first` is the position of value 0 in its
// parameter, below 2^35. Position p has 16 random bits: half (p % 2) of word (p % 8) / 2 of Philox
// block p / 8, however the parameter is cut. Infinity and NaN stay. `out` may be `sum`.
void AddRoundedPass(const RoundingKey& key, int64_t first, const uint16_t* sum,
                    const float* gradient, uint16_t* out, int64_t count);

// A copy to memory that is not read soon: it does not pull the target into the caches. An ordinary
// store reads the line that it writes; this saves a third of a copy's traffic. Other threads see it
// after any synchronisation with the caller. memcpy where the processor has nothing of the kind, or
// `to` is not aligned to 16 bytes. The ranges must not overlap.
void StreamCopy(void* to, const void* from, size_t bytes);

// Products of matrices, by rows: what Muon's steps are made of.
//
//   GramPass({.x = X, .rows = n, .columns = m, .out = A}, 0, n);  // A = X Xᵀ
//   MixPass({.x = X, .rows = n, .columns = m, .weights = B, .keep = a, .out = Y}, 0, n);  // aX+BX
//
// Matrices are row-major, dense, fp32. A call computes rows [begin, end) of the result; calls with
// different ranges may run at once. The bits do not depend on the range: a dot product has
// kDotLanes sums, term k in sum k % kDotLanes, each term one fused multiply-add, the sums added in
// order; a mixed value takes its terms in the order of the rows. `out` overlaps nothing that is
// read.
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

// "AVX3" for AVX-512, "AVX2", "NEON": what the passes run with here.
const char* KernelTarget();

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_KERNELS_H_
