// What a collection shows of the optimizer: each parameter's state by name, and where it lies.
//
//   StateLayout layout = StateLayout::Make(options.optimizer, stage_layout);
//   CopyState(layout, optimizer, bytes);            // layout.bytes of them
//   for (const StateSpec& spec : layout.specs) …    // "exp_avg" of parameter 3, at offset_bytes
//
// Names are torch's: AdamW has "step", "exp_avg" and "exp_avg_sq", SGD "step" and, with momentum,
// "momentum_buffer". A parameter that never had a gradient has step 0 and zeros.
#ifndef RINGZERO_ZERO_OPTIMIZER_STATE_H_
#define RINGZERO_ZERO_OPTIMIZER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "zero/layout.h"
#include "zero/optimizer.h"

namespace ringzero {

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

  static StateLayout Make(const OptimizerOptions& options, const StageLayout& stage);
};

// What StageOptimizers of these stages allocate, by stage: the forecast's moments.
std::vector<int64_t> MomentBytes(const OptimizerOptions& options,
                                 const std::vector<StageLayout>& stages);

// The working memory that updates of these stages need, by stage: an owner has one such block, for
// the stage that needs most.
std::vector<int64_t> ScratchBytes(const OptimizerOptions& options,
                                  const std::vector<StageLayout>& stages);

// Between two updates of the stage.
void CopyState(const StateLayout& layout, const StageOptimizer& optimizer, std::byte* out);
// The other way.
void PutState(const StateLayout& layout, const std::byte* in, StageOptimizer& optimizer);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_STATE_H_
