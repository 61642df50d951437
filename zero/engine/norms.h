// Norms: squares of complete sums, their norm on its way, and what follows from it: clipping, the
// loss scale, and updates that are skipped. With the executor's lock held, unless a method says
// otherwise.
#ifndef RINGZERO_ZERO_ENGINE_NORMS_H_
#define RINGZERO_ZERO_ENGINE_NORMS_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/sums.h"
#include "zero/engine/waits.h"
#include "zero/precision.h"

namespace ringzero {

class OwnedStages;

// What an update needs to know besides its sum.
struct UpdateTerms {
  double loss_scale = 1;
  float clip = 1;      // of the gradient's norm (gradient_sum.h)
  int64_t number = 0;  // updates made before: what the rate depends on
  // Nothing is updated: θ_{t+1} is θ_t, and the optimizer's state stays (no count either).
  bool skipped = false;
};

class Norms {
 public:
  // All must outlive this.
  Norms(Executor& executor, BlockMemory& blocks, Sums& sums, const OwnedStages& owned);

  // On the pool; may move the sum to its T.
  void StartSquares(int64_t op);
  // The squares of all stages of an iteration. An error ends the run: the loss scale cannot get
  // smaller.
  absl::Status Fold(const Instruction& op);
  // What the received message `op` has brought: a stage's squares, or the norm.
  absl::Status Keep(const Instruction& op);

  UpdateTerms TermsOf(const Op& update) const;
  double ScaleOf(Iteration t) const;
  // From a sum to the averaged gradient of the loss itself.
  double SumDivisor(Iteration t) const;
  // Of the run before iteration t, whose norm is known, and which is not long past.
  SavedScalars ScalarsBefore(Iteration t) const;
  const LossScale::History& scale() const { return scale_.history(); }

  // Engine::GradientSquares, before and after Gather.
  double SquaresHere(Iteration t) const;
  double SquaresAtTheEnd(Iteration t) const;
  std::optional<StageId> NonfiniteStage(Iteration t) const;
  // At the end: worker 0 gets all workers' last squares, each other worker keeps its own. No
  // message of the plan carries them: each asks worker 0 a question whose words they are.
  absl::Status Gather(Executor::Lock& lock, Waits& waits);
  // At worker 0: such a question's numbers. Returns the answer. Takes the lock.
  std::string Take(WorkerId from, absl::string_view numbers);

 private:
  // Where `op` leaves numbers for messages.
  std::span<double> Place(const Instruction& op, Role role);
  void NoteSquares(Iteration t, StageId stage, std::span<const double> squares);
  // The global norm is known, and with it whether the iteration overflowed.
  absl::Status NoteNorm(Iteration t, double norm);
  // The norm of a stage's averaged gradient; of its parameters without one: 0.
  double StageNorm(Iteration t, StageId stage) const;
  float ClipOf(const Op& update) const;
  absl::Status Tell(Executor::Lock& lock, Waits& waits, const std::string& mine);
  const Plan& plan() const { return executor_.plan(); }

  Executor& executor_;
  BlockMemory& blocks_;
  Sums& sums_;
  const OwnedStages& owned_;
  std::map<std::pair<int, int>, std::vector<double>> squares_;  // (iteration, stage): undivided
  std::map<int, double> norms_;                                 // by iteration: global ones
  std::map<int, LossScale::History> histories_;                 // by the iteration noted last
  std::map<int, std::vector<double>> told_;  // worker 0: by worker, of the last iterations
  std::map<int, double> last_squares_;       // by iteration, from Gather on
  LossScale scale_;                          // where overflows are not skipped it is told nothing
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_NORMS_H_
