// Saver: writes versions of a run to files while the run goes on (Plan::checkpoint).
//
//   options.saver = std::make_unique<MySaver>(…);       // EngineOptions, one for each worker
//   // In the order of the program, one at a time: Save for each part, and at worker 0 Commit. Each
//   // begins, and ends by calling `done`.
//
// What a save reads stays as it is until then: the updates that would overwrite it wait. So a saver
// copies nothing, and a slow one makes updates wait.
#ifndef RINGZERO_ZERO_SAVER_H_
#define RINGZERO_ZERO_SAVER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "zero/optimizer/optimizer.h"
#include "zero/precision.h"
#include "zero/streams.h"

namespace ringzero {

// A stage of version θ_v at its owner; or its running statistics at the last worker.
struct SavedPart {
  StageId stage;
  Version version;
  const std::byte* masters = nullptr;  // fp32, in StageLayout; null: in the optimizer's state
  // What iteration v reads besides: θ_{v-1} or predictions, as they travel (Beginning::version).
  std::vector<std::pair<Version, const std::byte*>> others;
  const StageOptimizer* optimizer = nullptr;  // null: a stage without anything to train
  const std::byte* statistics = nullptr;      // null: the part is a stage
  Streams* streams = nullptr;                 // of a stage that streams: a saver may take its file

  // Of the stage's parameter with this number.
  const std::byte* MastersOf(const StageLayout& layout, int parameter) const {
    if (masters != nullptr) return masters + layout.parameters[parameter].master_offset_bytes;
    return std::as_bytes(optimizer->state(parameter).masters).data();
  }
};

// Of the run before iteration v (Beginning).
struct SavedScalars {
  double norm = 0;
  std::optional<LossScale::History> loss_scale;
};

class Saver {
 public:
  using Done = std::function<void()>;

  // Reads no part any more and calls no `done`, from here on.
  virtual ~Saver() = default;

  // Called with the engine's lock held: it must not block, nor call `done` itself. `done` is called
  // once, on another thread. What cannot be written is no error of the run: `receipt`
  // (kReceiptBytes) says it to Commit. Of a version's first part it is all zeros, and then what the
  // part before left.
  virtual void Save(const SavedPart& part, std::span<std::byte> receipt, Done done) = 0;
  // At worker 0: all workers have saved version v. `receipts` are of those that have parts,
  // ascending.
  virtual void Commit(Version v, const SavedScalars& scalars,
                      const std::vector<std::span<const std::byte>>& receipts, Done done) = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_SAVER_H_
