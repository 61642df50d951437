// TrainModel: a model of one's own trained around the ring: planned, launched and connected.
//
//   const absl::Status status = TrainModel(
//       {.plan = {.workers = 3, .micro_batch = 16, .iterations = 200}, .optimizer = {…}},
//       [] { return Model{.layers = MyLayers(), .example = {at::zeros({1, 8})}}; },
//       [](RingModel& ring) -> absl::Status {
//         while (true) {
//           RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
//           if (lap.kind == LapTask::Kind::kDone) return absl::OkStatus();
//           if (lap.kind == LapTask::Kind::kCollect) { …ring.Collect(visit)…; continue; }
//           auto [x, y] = MyBatch(lap.iteration, lap.micro_batch);
//           at::Tensor loss = torch::nn::functional::mse_loss(ring.Forward({x})[0], y);
//           loss.backward();
//           RZ_RETURN_IF_ERROR(ring.EndMicroBatch({loss.item<double>()}));
//         } });
//
// examples/custom_model is a whole program. run_workers.h says which errors there are, and which
// process may call this.
#ifndef RINGZERO_INTEGRATIONS_TORCH_TRAIN_MODEL_H_
#define RINGZERO_INTEGRATIONS_TORCH_TRAIN_MODEL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"  // what a loop is written with
#include "integrations/torch/layer.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/run_workers.h"
#include "zero/model_plan.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {

struct Model {
  std::vector<LayerFactory> layers;  // of LayersOf for a ready module with marks (stage_marks.h)
  TensorList example;  // the inputs of one sample (batch size 1), to count costs; may be empty if
                       // every layer gives its own
};

struct TrainOptions {
  PlanRequest plan;            // workers, rule, laps, micro_batch, iterations, collection, …
  OptimizerOptions optimizer;  // becomes plan.optimizer, too
  uint64_t seed = 0;           // of initial values and dropout
  RunWorkersOptions run;       // launch.workers and seat are found by TrainModel
  // Called in worker 0, on a thread of the engine, in order: the numbers of an iteration (or of an
  // evaluation), summed over its micro-batches.
  std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> on_report;
  std::chrono::milliseconds wait_timeout{std::chrono::minutes(10)};
};

// `model` is called in every process, `loop` in every worker. `loop` goes on until NextLap says
// kDone; TrainModel then waits for what is left. Both may throw. Under torchrun, mpirun or srun
// this process is one worker, and the launcher says how many there are, whatever the plan's request
// has (docs/launchers.md).
absl::Status TrainModel(const TrainOptions& options,
                        const std::function<absl::StatusOr<Model>()>& model,
                        const std::function<absl::Status(RingModel&)>& loop);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_TRAIN_MODEL_H_
