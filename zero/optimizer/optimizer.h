// Optimizer: one owner's update of one stage, a pure function of (θ, sum, state).
//
//   StageOptimizer optimizer(options, layout);
//   optimizer.Update({.iteration = t, .divisor = N * K, .theta = θ_t, .sum = sum}, θ_{t+1});
//
//   StateLayout layout = StateLayout::Make(options, stage_layout);
//   CopyState(layout, optimizer, bytes);            // layout.bytes of them
//   for (const StateSpec& spec : layout.specs) …    // "exp_avg" of parameter 3, at offset_bytes
//
// g = sum / (N·K · the loss's scale) · clip in fp32, one division and one product. Where what
// travels is not fp32, θ and `out` are masters, and the version that travels is written in the same
// pass. What a value becomes is the update's (parameter_update.h): formulas and their order of
// operations are torch.optim's, within 1 ulp a step. The rate of an iteration is that of its number
// on the curve (rate_curve.h), so a restart needs no more. A parameter whose bit in the sum's
// trailer is not set had no gradient in the whole iteration: its values are carried over and its
// state stays (no decay, no momentum, no count), as in PyTorch.
#ifndef RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_H_
#define RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "offload/io_engine.h"
#include "sharding/plan.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer_options.h"
#include "zero/optimizer/parameter_update.h"

namespace ringzero {

struct UpdateInput {
  int64_t iteration = 0;  // from 0: what the rate depends on
  double divisor = 1;  // N·K, or what an incomplete batch has instead (sharding/rules/schedule.h)
  double loss_scale = 1;
  float clip = 1;  // of the gradient's norm (gradient_sum.h)
  // As if no parameter had a gradient: θ_{t+1} is θ_t, and the state stays. The sum is not read.
  bool skipped = false;
  // θ_t, in the stage's layout of masters. Null: masters are a part of the state.
  const std::byte* theta = nullptr;
  const std::byte* sum = nullptr;  // in the stage's sum layout, trailer included
  std::byte* wire = nullptr;       // where masters are apart: θ_{t+1} as it travels
  // Written besides θ_{t+1}, as it travels: what the next update may make of it (kernels.h). What
  // an update leaves alone is predicted to stay. Null: nothing.
  std::byte* predicted = nullptr;
  // StageOptimizer::scratch_bytes() from a multiple of 64 on, the same for all blocks of an update.
  // Null where there are none.
  std::byte* scratch = nullptr;
  float* staged = nullptr;  // of a block of a StatePiece: the piece
};

// A part of a state that is not in memory all the time: a run of a parameter's values. In memory
// all of its first state comes first, then from StateBytes() on the second, then its masters.
struct StatePiece {
  int parameter = 0;
  int64_t begin = 0;  // values
  int64_t end = 0;
  int states = 1;  // with masters
  bool masters = false;
  // Of one state: whole pages, as direct I/O wants them.
  int64_t StateBytes() const {
    constexpr int64_t kInPage = kDirectAlignment / static_cast<int64_t>(sizeof(float));
    return (end - begin + kInPage - 1) / kInPage * kDirectAlignment;
  }
};
// What is streamed of a stage (StagePlan::streamed_bytes), in the order of updates: parameters of
// at least `least` values whose update has one phase, and states that are 0 at first. Updates of
// several phases read a state more than once. With `masters` these stream, too.
std::vector<StatePiece> StatePieces(const OptimizerOptions& options, const StageLayout& layout,
                                    bool masters, int64_t least = kUpdateBlockValues);
// The digest of a piece, block by block of its update, and state by state of a block.
uint64_t AddToDigest(uint64_t digest, std::span<const float> values);
// How much less a StageOptimizer keeps in memory.
int64_t StreamedBytes(const StageLayout& layout, const std::vector<StatePiece>& pieces);

// The unit in which updates yield to adds: items of one phase of one parameter's update; in phase 0
// they are values.
struct UpdateBlock {
  int parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int phase = 0;
  // Blocks of one round may run in any order and at the same time; a round begins when the one
  // before has ended.
  int round = 0;
  int piece = -1;  // of StatePieces, whose memory it needs
};

// The state of one stage: moments and counts. Not thread-safe, except that after Begin different
// blocks may be updated at the same time.
class StageOptimizer {
 public:
  // `moments`: zeroed memory for its state, at least MomentBytes() of its plan, which must
  // outlive it; empty: it has memory of its own. If a piece has masters, all are in the state.
  StageOptimizer(const OptimizerOptions& options, const StageLayout& layout,
                 std::span<std::byte> moments = {}, std::vector<StatePiece> pieces = {});
  StageOptimizer(StageOptimizer&&) noexcept = default;

  // Begin once, then Block once for each of blocks(), round by round: writes θ_{t+1} to `out`,
  // which may be θ_t itself (in place); null where masters are a part of the state. Frozen
  // parameters are carried over.
  void Begin(const UpdateInput& input);
  void Block(const UpdateBlock& block, const UpdateInput& input, std::byte* out);
  const std::vector<UpdateBlock>& blocks() const { return blocks_; }  // by round
  // Between Begin and the end: the sum of squares of a block's values in the sum, undivided; 0 of a
  // parameter without a gradient, and of phases after the first. In double, in a fixed order.
  double SumOfSquares(const UpdateBlock& block, const UpdateInput& input) const;

  // Between Begin and the end: the parameter has a gradient, and so its state changes.
  bool contributes(int parameter) const { return states_[parameter].contributed; }

  // All of it at once, with scratch of its own where the input brings none.
  void Update(const UpdateInput& input, std::byte* out);

  // Working memory of an update, free between updates: of the parameter that needs most.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  const std::vector<StatePiece>& pieces() const { return pieces_; }

  // One parameter's state between two updates. A span that is empty: there is no such state, or it
  // is in pieces.
  struct ParameterState {
    int64_t updates = 0;  // of this parameter: Adam's bias correction
    std::span<float> first;
    std::span<float> second;
    std::span<float> masters;
  };
  const ParameterState& state(int parameter) const { return states_[parameter].kept; }
  ParameterState& state(int parameter) { return states_[parameter].kept; }

 private:
  struct State {
    std::shared_ptr<const ParameterUpdate> update;
    double rate_factor = 1;
    bool contributed = false;  // in the update begun
    ParameterState kept;
  };

  void AddBlocks(int parameter);

  OptimizerOptions options_;
  StageLayout layout_;
  std::vector<StatePiece> pieces_;
  std::vector<UpdateBlock> blocks_;
  int rounds_ = 1;
  std::vector<State> states_;  // by parameter
  // All of the stage in one block: an allocator rounds every large block up.
  Buffer own_moments_;
  int64_t moment_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

// What a collection shows of the optimizer: each parameter's state by name, and where it lies.
// Names are torch's: AdamW has "step", "exp_avg" and "exp_avg_sq", SGD "step" and, with momentum,
// "momentum_buffer". A parameter that never had a gradient has step 0 and zeros.
struct StateSpec {
  enum class Kind {
    kStep,    // one int64: updates of this parameter
    kFirst,   // fp32 in the parameter's own storage order
    kSecond,  // likewise
  } kind = Kind::kStep;
  std::string name;
  int parameter = 0;         // index into StageLayout::parameters; a trainable one
  int64_t offset_bytes = 0;  // a multiple of 64
};

struct StateLayout {
  std::vector<StateSpec> specs;  // by parameter
  int64_t bytes = 0;             // 0: nothing trainable
  int64_t moment_bytes = 0;      // of a StageOptimizer, which keeps no steps there
  int64_t scratch_bytes = 0;     // working memory of an update, of the parameter that needs most

  static StateLayout Make(const OptimizerOptions& options, const StageLayout& stage);
};

// What StageOptimizers of these stages allocate, by stage: the forecast's moments. `plans`: of the
// stages; what they stream is not in memory. Empty: none streams.
std::vector<int64_t> MomentBytes(const OptimizerOptions& options,
                                 const std::vector<StageLayout>& stages,
                                 const std::vector<StagePlan>& plans = {});

// The working memory that updates of these stages need, by stage: an owner has one such block, for
// the stage that needs most.
std::vector<int64_t> ScratchBytes(const OptimizerOptions& options,
                                  const std::vector<StageLayout>& stages);

// Between two updates of the stage.
void CopyState(const StateLayout& layout, const StageOptimizer& optimizer, std::byte* out);
// The other way.
void PutState(const StateLayout& layout, const std::byte* in, StageOptimizer& optimizer);
// Of an optimizer whose state has the masters: into their layout, and from there.
void CopyMasters(const StageLayout& layout, const StageOptimizer& optimizer, std::byte* out);
void PutMasters(const StageLayout& layout, const std::byte* in, StageOptimizer& optimizer);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_OPTIMIZER_H_
