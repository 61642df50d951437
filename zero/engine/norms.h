// Norms: squares of complete sums, their norm on its way, and what follows from it: clipping, the
// loss scale, and updates that are skipped.
//
//   norms.StartSquares(op);                          // on the pool; may move the sum to its T
//   RZ_RETURN_IF_ERROR(norms.Fold(t));               // the norm of iteration t
//   UpdateTerms terms = norms.TermsOf(update);       // what its update needs to know
//
// With the executor's lock held, unless a method says otherwise.
#ifndef RINGZERO_ZERO_ENGINE_NORMS_H_
#define RINGZERO_ZERO_ENGINE_NORMS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/sums.h"
#include "zero/engine/waits.h"
#include "zero/loss_scale.h"
#include "zero/owned_stages.h"

namespace ringzero {

class Norms {
 public:
  // All must outlive this.
  struct Parts {
    Executor& executor;
    BlockMemory& blocks;
    Sums& sums;
    const OwnedStages& owned;
  };
  explicit Norms(const Parts& parts);

  void StartSquares(int64_t op);
  // Of all stages of iteration t. An error ends the run: the loss scale cannot get smaller.
  absl::Status Fold(Iteration t);
  // The message `op`: a stage's squares, or the norm.
  absl::StatusOr<Buffer> Message(const Op& op) const;
  // What such a message has brought.
  absl::Status Keep(const Op& op, Buffer message);

  UpdateTerms TermsOf(const Op& update) const;
  double ScaleOf(Iteration t) const;
  // From a sum to the averaged gradient of the loss itself.
  double SumDivisor(Iteration t) const;
  int skipped() const { return scale_.skipped(); }
  double scale_now() const { return scale_.now(); }

  // Engine::GradientSquares, before and after Gather.
  double SquaresHere(Iteration t) const;
  double SquaresAtTheEnd(Iteration t) const;
  std::optional<StageId> NonfiniteStage(Iteration t) const;
  // At the end: worker 0 gets all workers' last squares, each other worker keeps its own. No message
  // of the plan carries them: each asks worker 0 a question whose words they are.
  absl::Status Gather(Executor::Lock& lock, Waits& waits);
  // At worker 0: such a question's numbers. Returns the answer. Takes the lock.
  std::string Take(WorkerId from, absl::string_view numbers);

 private:
  void NoteSquares(Iteration t, StageId stage, std::vector<double> squares);
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
  std::map<int, std::vector<double>> told_;  // worker 0: by worker, of the last iterations
  std::map<int, double> last_squares_;       // by iteration, from Gather on
  LossScale scale_;                          // where overflows are not skipped it is told nothing
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_NORMS_H_
