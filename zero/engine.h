// Engine: runs one worker's program; what the computing side calls, in program order.
//
//   RZ_ASSIGN_OR_RETURN(auto engine, Engine::Create(std::move(options)));
//   while (true) {
//     RZ_ASSIGN_OR_RETURN(LapTask lap, engine->NextLap());
//     if (lap.kind == LapTask::Kind::kDone) break;   // kEvaluate, kCollect: their calls are below
//     for j = 0..S-1:   BeginForward(j) … compute … EndForward(j, statistics)
//     for j = S-1..0:   BeginBackward(j) … compute … EndBackward(j, gradient)
//     EndMicroBatch({loss, …});
//   }
//   engine->Finish();
//
// All these are called by one computing thread, in exactly the program's order; anything else is a
// FailedPrecondition that names the stage expected and the one found. They wait only for what the
// plan names, each wait with a deadline (EngineOptions::wait_timeout) and a name. Everything else
// (messages, adds, updates) happens on the engine's own threads, driven by the links of
// sharding/program/link.h. The first error wins, ends every worker, and is returned by every later
// call.
#ifndef RINGZERO_ZERO_ENGINE_H_
#define RINGZERO_ZERO_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/memory/block_table.h"
#include "sharding/plan.h"
#include "zero/engine_options.h"
#include "zero/flight/flight_record.h"
#include "zero/flight/flight_recorder.h"
#include "zero/layout.h"

namespace ringzero {

// One gradient of a micro-batch: numel values of `type` in the parameter's own storage order.
struct GradientPart {
  int parameter = 0;  // index into StageLayout::parameters
  const void* data = nullptr;
  std::shared_ptr<const void> keep;  // keeps `data` alive until the add has read it (any thread)
  ValueType type = ValueType::kFp32;
};
// A parameter that is not listed had no gradient in this micro-batch.
using StageGradient = std::vector<GradientPart>;

// Parameters of one stage, in its layout, as they travel.
struct StageCopy {
  StageId stage;
  SharedBuffer parameters;
};

// What one stage needs in an evaluation: parameters (tied ones already held) and running
// statistics.
struct EvaluationCopy {
  std::vector<StageCopy> copies;
  SharedBuffer statistics;  // empty: the stage has none, or they are still the run's first ones
};

// What worker 0 may ask for while the run goes on.
enum class Request { kEnd, kEvaluation, kCollection, kCheckpoint };

// What a collection shows next: one part of one stage.
struct CollectedPart {
  enum class Kind {
    kParameters,  // and running statistics
    kGradient,  // averaged over the iteration's samples, in layout and type of a sum, with trailer
    kState,     // the optimizer's, in StateLayout (zero/optimizer/optimizer.h)
  } kind = Kind::kParameters;
  StageId stage{0};
  SharedBuffer parameters;  // kParameters: masters; empty: the stage has none
  SharedBuffer statistics;  // kParameters; empty: it has none, or they are still the first ones
  const std::byte* values = nullptr;  // kGradient, kState; valid until EndCollect
};

// Seconds and counts since Create, for the summary; monotonic.
struct EngineStats {
  double wait_parameters_seconds = 0;     // computing thread: copies (relayed or injected)
  double wait_gradient_sums_seconds = 0;  // more than `pending` gradients waited for their sums
  double wait_update_seconds = 0;         // a version that this worker itself owns and updates
  double wait_other_seconds = 0;          // tokens, statistics
  double forward_seconds = 0;             // from BeginForward to EndForward
  double backward_seconds = 0;
  TransportStats transport;
  int skipped_updates = 0;  // iterations whose sums were not finite (plan.skip_overflows), so far
  double loss_scale = 1;    // after those
  int64_t operations_known = 0;  // of the program at once, at their most
  // What it has allocated, each category at its most so far.
  MemoryBytes memory;
};

class Engine {
 public:
  // InvalidArgument when plan and layouts do not match; what Verify says when the plan is wrong.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options);
  ~Engine();  // aborts the run unless Finish has succeeded

  absl::StatusOr<LapTask> NextLap();

  // The copy of the stage itself. Copies of tied stages are those of their own BeginForward: they
  // stay valid until EndForward of the last stage that reads them.
  absl::StatusOr<std::vector<StageCopy>> BeginForward(StageId stage);
  // `statistics`: this micro-batch's batch statistics in the stage's layout (kCount entries
  // ignored); empty when the stage has none.
  absl::Status EndForward(StageId stage, Buffer statistics);

  // The stage's own copy first, then those of stages whose tied parameters this backward reads
  // first.
  absl::StatusOr<std::vector<StageCopy>> BeginBackward(StageId stage);
  // Within the stage's backward: where its running sum lies, if it is here; then gradients may be
  // added to it at once (zero/gradient_sum.h, with the engine's seed), and need not be given to
  // EndBackward. Null: it is still on its way, or the stage has none. The same until EndBackward
  // once it is not null.
  std::byte* OpenSum(StageId stage);
  absl::Status EndBackward(StageId stage, StageGradient gradient);

  // Losses and metrics of the micro-batch (training or evaluation), metrics_count of them.
  absl::Status EndMicroBatch(const std::vector<double>& metrics);

  // A missing micro-batch, from its first forward to its end: what belongs to it is taken and
  // passed on, nothing is computed or added but `metrics`. FailedPrecondition if it has samples.
  absl::Status SkipMicroBatch(const std::vector<double>& metrics);

  absl::StatusOr<EvaluationCopy> BeginEvaluation(StageId stage);
  absl::Status EndEvaluation(StageId stage);

  // kCollect: the next part, in the program's order: of each stage in model order its parameters
  // and, in a collection of the plan's (plan.collection), its gradient and its optimizer state. The
  // closing collection, at worker 0, shows the last version's parameters alone. Both return
  // FailedPrecondition if the program expects something else.
  absl::StatusOr<CollectedPart> Collect();
  absl::Status EndCollect();

  // At worker 0, in a plan with requests: asks that the run ends early, or that a version is
  // evaluated or collected. Returns the version that it is about, a few iterations ahead: all
  // workers hear of it before they come there, and their NextLap says it. An end later than the
  // plan's own changes nothing. It is verified first, which takes as long as for a new plan of five
  // iterations. FailedPrecondition: not worker 0, the plan has no requests, no laps of evaluation
  // or no collections on request, or the run ends before that version; and what Verify says. The
  // run goes on.
  absl::StatusOr<Version> Ask(Request request);
  // How many the run has, as far as this worker knows: Ask may make it shorter. Thread-safe.
  int iterations() const;

  // Waits until this worker's program is done, then says goodbye. With gradient_norms worker 0
  // waits for the others' last squares, too.
  absl::Status Finish();
  // The sum of squares of update t's averaged gradients, before clipping, over the stages that this
  // worker owns. The sum over all workers is the square of the norm. Where clipping needs the norm,
  // worker 0 has the whole sum and the others have 0. A metric: its last bits may depend on which
  // worker owns which stage. Needs gradient_norms or clipping. Thread-safe.
  // It is complete when this worker has begun all forwards of iteration t + 1 (dp) or t + 2 (cdp
  // rules). It is kept until update t + 3. After Finish there are those of the last three
  // iterations; with gradient_norms worker 0 then has the sum over all workers.
  double GradientSquares(Iteration t) const;
  // In which stage update t first had a gradient that is not finite. A backward goes from the last
  // stage to the first, so it is the last stage that has one. Nothing: all are finite, or it is not
  // known. Worker 0 knows it, where there is a global norm, for as long as GradientSquares.
  std::optional<StageId> NonfiniteStage(Iteration t) const;
  // Any thread, from the iteration's first BeginForward on until three later: what the gradients of
  // its loss must be multiplied by, before they are rounded.
  double LossScaleOf(Iteration t) const;
  // Ends the run on every worker.
  void Abort(const absl::Status& why);
  absl::Status status() const;

  const Plan& plan() const;
  EngineStats stats() const;  // any thread
  // Any thread, also while the run goes on.
  const FlightRecorder& recorder() const;
  // For a file: what this worker does or waits for, and its last events. Waits for the engine's
  // lock a second at most, and does without.
  FlightRecord Flight(const std::string& why) const;
  // Asks worker 0 a few times what its clock says; never blocks. Once it answers, records and
  // clock_offset() have it. Nothing at worker 0.
  void MeasureClock();
  std::optional<ClockOffset> clock_offset() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_H_
