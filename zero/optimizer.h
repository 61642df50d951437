// Optimizer: one owner's update of one stage, a pure function of (θ, sum, state), elementwise.
//
//   StageOptimizer optimizer(options, layout);
//   optimizer.Update(UpdateInput{.iteration = t, .divisor = N * K, .theta = θ_t, .sum = sum},
//   θ_{t+1});
//
// g = sum / (N·K · the loss's scale) in fp32, one division. Where what travels is not fp32, θ and
// `out` are masters, and the version that travels is written in the same pass. What a value becomes
// is the update's (zero/update): formulas and their order of operations are torch.optim's, within 1
// ulp a step. The rate of an iteration is that of its number on the curve (rate_curve.h), so a
// restart needs no more. A parameter whose bit in the sum's trailer is not set had no gradient in
// the whole iteration: its values are carried over and its state stays (no decay, no momentum, no
// count), as in PyTorch.
#ifndef RINGZERO_ZERO_OPTIMIZER_H_
#define RINGZERO_ZERO_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "zero/layout.h"
#include "zero/update/elementwise_update.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {

struct UpdateInput {
  int64_t iteration = 0;  // from 0: what the rate depends on
  double divisor = 1;     // N·K, or what an incomplete batch has instead (sharding/samples.h)
  double loss_scale = 1;
  const std::byte* theta;     // θ_t, in the stage's layout of masters
  const std::byte* sum;       // in the stage's sum layout, trailer included
  std::byte* wire = nullptr;  // where masters are apart: θ_{t+1} as it travels
};

// A run of one parameter's values, the unit in which updates yield to adds.
struct UpdateBlock {
  int parameter = 0;
  int64_t begin = 0;  // elements
  int64_t end = 0;
};

// The state of one stage: moments and counts. Not thread-safe, except that after Begin different
// blocks may be updated at the same time.
class StageOptimizer {
 public:
  StageOptimizer(const OptimizerOptions& options, const StageLayout& layout);
  StageOptimizer(StageOptimizer&&) noexcept = default;

  // Begin once, then Block once for each of blocks(), in any order: writes θ_{t+1} to `out`, which
  // may be θ_t itself (in place). Frozen parameters are carried over.
  void Begin(const UpdateInput& input);
  void Block(const UpdateBlock& block, const UpdateInput& input, std::byte* out);
  const std::vector<UpdateBlock>& blocks() const { return blocks_; }
  // Between Begin and the end: the sum of squares of a block's values in the sum, undivided; 0 of a
  // parameter without a gradient. In double, in a fixed order.
  double SumOfSquares(const UpdateBlock& block, const UpdateInput& input) const;

  // All of it at once.
  void Update(const UpdateInput& input, std::byte* out);

  int64_t state_bytes() const { return moment_bytes_; }

  // One parameter's state between two updates; valid until the next. Empty: there is none.
  struct ParameterState {
    int64_t updates = 0;
    std::span<const float> first;
    std::span<const float> second;
  };
  ParameterState state(int parameter) const;

 private:
  struct State {
    std::shared_ptr<const ElementwiseUpdate> update;
    double rate_factor = 1;
    bool contributed = false;  // in the update begun
    int64_t updates = 0;       // counts this parameter's updates: Adam's bias correction
    float* first = nullptr;    // the update's first state; null: it has none
    float* second = nullptr;
  };

  OptimizerOptions options_;
  StageLayout layout_;
  std::vector<UpdateBlock> blocks_;
  std::vector<State> states_;  // by parameter
  // All of the stage in one block: an allocator rounds every large block up.
  Buffer moments_;
  int64_t moment_bytes_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_H_
