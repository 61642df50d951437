// RingTotals: what each worker adds to the report of a micro-batch besides its loss, so that the
// plan's folds sum it over the ring: waits, computing, bytes sent, memory, pace.
//
//   RingTotals totals(plan);                                    // one per worker
//   std::vector<double> mine = totals.Take(lap, engine.stats(), {.squares = …});  // since the last
//   for (const Scalar& scalar : RingTotals::Scalars(sums, plan.workers)) { … }
//
// Waits, computing and bytes are those since the micro-batch before; memory is what is allocated at
// the end of an iteration; gradients are those of an earlier update (GradientLag). One thread.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_RING_TOTALS_H_
#define RINGZERO_INTEGRATIONS_SIGHT_RING_TOTALS_H_

#include <span>
#include <string>
#include <vector>

#include "integrations/sight/metrics.h"
#include "integrations/sight/pace.h"
#include "sharding/plan.h"
#include "zero/engine.h"

namespace ringzero {

class RingTotals {
 public:
  static constexpr int kCount = 30;
  // Their places.
  static constexpr int kGradientSquares = 19, kLossScale = 20, kNonfiniteLosses = 21,
                       kNonfiniteNumbers = 22, kOffCore = 23, kPss = 24, kPace = 25;

  // What only some workers know; else 0.
  struct Known {
    double squares = 0;     // first lap: of this worker's gradients, GradientLag iterations ago
    double loss_scale = 0;  // first lap, worker 0: of this iteration
    double nonfinite_losses = 0;  // 1: the micro-batch's loss is not finite
    double nonfinite_number = 0;  // there: the micro-batch's number
    double off_core_seconds = 0;  // since the micro-batch before
    double pss_mib = 0;           // last lap: of this worker's process
    Pace pace;                    // first lap, the worker of PaceOf: up to here
  };

  explicit RingTotals(const Plan& plan) : laps_(plan.laps), last_(kCount) {}

  // kCount values. Of evaluations and the like: zeros, and what was done for them is left out.
  std::vector<double> Take(const LapTask& lap, const EngineStats& stats, const Known& known);

  // The report of iteration t tells the gradient norm of iteration t - lag: only then every owner
  // has certainly updated with it (Engine::GradientSquares). The last ones are known after Finish.
  static int GradientLag(const Plan& plan) {
    const int update = plan.rule == Rule::kDp ? 1 : 2;
    // The norm itself is waited for by the update after it.
    return plan.clipping == Clipping::kPrevious ? update + 1 : update;
  }

  // Whose pace the report of iteration `t` tells: each worker's in turn.
  static WorkerId PaceOf(const Plan& plan, Iteration t) { return WorkerId(t.value % plan.workers); }
  static Pace PaceIn(std::span<const double> sums);

  // Times as milliseconds of the mean worker, bytes of the whole ring; without what is Known.
  // `sums`: kCount values, summed over an iteration.
  static std::vector<Scalar> Scalars(std::span<const double> sums, int workers);

 private:
  const int laps_;
  std::vector<double> last_;  // all so far
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_RING_TOTALS_H_
