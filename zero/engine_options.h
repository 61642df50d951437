// EngineOptions: what a worker's engine is made of.
//
//   EngineOptions options{.plan = plan, .self = worker, .transport = std::move(transport),
//                         .layouts = layouts, .optimizer = optimizer};
//   options.initialize = [&](StageId j, std::byte* parameters) { return Fill(j, parameters); };
//   RZ_ASSIGN_OR_RETURN(auto engine, Engine::Create(std::move(options)));
#ifndef RINGZERO_ZERO_ENGINE_OPTIONS_H_
#define RINGZERO_ZERO_ENGINE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/check/verify.h"
#include "sharding/plan.h"
#include "zero/flight/flight_recorder.h"
#include "zero/layout.h"
#include "zero/op_costs.h"
#include "zero/optimizer/optimizer.h"
#include "zero/precision.h"
#include "zero/saver.h"
#include "zero/state_tier.h"

namespace ringzero {

// What the program wants computed next.
struct LapTask {
  enum class Kind { kTrain, kEvaluate, kCollect, kDone };
  Kind kind = Kind::kDone;
  Iteration iteration{0};  // kTrain: t. kEvaluate, kCollect: e, the version θ_e
  Lap lap{0};
  int micro_batch = 0;  // l·N + w: its number within the iteration (or the evaluation)
  // kTrain: how many samples it must have; nothing: the plan does not count them.
  std::optional<int64_t> samples;
  // Then SkipMicroBatch stands for all of it.
  bool missing() const { return samples == 0; }
};

// What a run has that begins with a version f > 0 (Plan::first_iteration), besides θ_f. With it the
// run has the bits of one that went on from iteration f - 1. Calls come from Engine::Create, in
// stage order, for stages that train and whose masters this worker has.
struct Beginning {
  // Fills the optimizer's state after update f - 1, in StateLayout (zero/optimizer/optimizer.h).
  std::function<absl::Status(StageId, std::byte* state)> state;
  // Fills what iteration f reads besides θ_f, as it travels: θ_{f-1}, or the predictions p_f and
  // p_{f+1} (FirstVersions in sharding/rules/schedule.h). A rule or a warm-up without either never
  // calls it. NotFound: there is none, and θ_f is read in its place, as in a run that begins with
  // it.
  std::function<absl::Status(StageId, Version label, std::byte* values)> version;
  double norm = 0;  // the gradient norm of iteration f - 1: Clipping::kPrevious clips by it
  std::optional<LossScale::History> loss_scale;  // where overflows are skipped
};

// A stage's gradient in one micro-batch.
struct OverflowPlace {
  Iteration iteration{0};
  StageId stage{0};
  int micro_batch = 0;  // within the iteration, l·N + w
  friend bool operator==(const OverflowPlace&, const OverflowPlace&) = default;
};

struct EngineOptions {
  Plan plan;                       // window resolved
  std::optional<PlanProof> proof;  // of the plan; without, Create verifies it
  WorkerId self{0};
  std::unique_ptr<Transport> transport;
  std::vector<StageLayout> layouts;  // by stage
  OptimizerOptions optimizer;
  // What gradients are multiplied by (LossScaleOf); updates divide by it. A dynamic one needs
  // plan.skip_overflows.
  LossScaleOptions loss_scale;
  uint64_t seed = 0;  // of the random numbers that round sums
  // Fills the first version, in fp32, of a stage whose masters this worker has; called by Create,
  // in stage order.
  std::function<absl::Status(StageId, std::byte* parameters)> initialize;
  // Where parameters lie that do not travel: without exchange, and in stage 0 of ZeRO; null: on the
  // heap.
  std::function<absl::StatusOr<Buffer>(size_t bytes)> parameter_memory;
  Beginning beginning;           // where plan.first_iteration > 0
  std::unique_ptr<Saver> saver;  // where plan.checkpoint.any()
  TierOptions tier;              // where stages stream
  // Fills the first running statistics of a stage; called on worker 0 only.
  std::function<absl::Status(StageId, std::byte* statistics)> initialize_statistics;
  int metrics_count = 0;        // doubles in each micro-batch's report
  bool gradient_norms = false;  // updates count squares for GradientSquares
  // Worker 0: an iteration's (or evaluation's) folded metrics; on an engine thread, in order.
  std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> on_report;
  std::chrono::milliseconds wait_timeout{std::chrono::minutes(10)};
  size_t recorder_events = kFlightEvents;  // of each of its rings; 0: nothing is recorded
  OpCosts* costs = nullptr;                // counts what operations take; outlives the engine
  double update_slowness = 1;  // for measuring: every update takes so many times as long, asleep
  // For tests: after these micro-batches' gradients the first value of a stage's sum is infinite.
  std::vector<OverflowPlace> overflows;
  // Called once, at the error that ends the run here, on any thread, with the engine's lock held:
  // it must not block, nor call the engine.
  std::function<void()> on_failure;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_OPTIONS_H_
