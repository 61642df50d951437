// RunRing: trains a task on N workers, each a thread.
//
//   RZ_ASSIGN_OR_RETURN(PlannedTask planned, PlanTask(task, {.workers = 3, .iterations = 4}));
//   RZ_ASSIGN_OR_RETURN(TrainingResult got, RunRing(task, planned));
#ifndef RINGZERO_TESTS_SUPPORT_RING_RUNNER_H_
#define RINGZERO_TESTS_SUPPORT_RING_RUNNER_H_

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/ring_model.h"
#include "tests/p2p/transports.h"
#include "tests/support/tasks.h"
#include "zero/model_plan.h"

namespace ringzero {

struct PlannedTask {
  ModelDescription description;
  PlannedModel planned;
  const Plan& plan() const { return planned.plan; }
};
absl::StatusOr<PlannedTask> PlanTask(const TrainingTask& task, const PlanRequest& request);

struct RingOptions {
  MakeTransports transports = LocalTransports();
  // One micro-batch on a worker, in place of TrainStep.
  std::function<absl::Status(RingModel&, const LapTask&, const TaskBatch&)> step;
  std::chrono::milliseconds wait_timeout{std::chrono::seconds(60)};
  bool products_first = false;  // RingModelOptions
  // Changes what each worker is created with.
  std::function<absl::Status(RingModelOptions&)> prepare;
};

// Forward, loss, backward and EndMicroBatch.
absl::Status TrainStep(const TrainingTask& task, RingModel& model, const TaskBatch& batch);

// The first worker's error, if any.
absl::StatusOr<TrainingResult> RunRing(const TrainingTask& task, const PlannedTask& planned,
                                       const RingOptions& options = {});

// One worker's RingModel on this thread, without a ring (the plan has one worker).
absl::StatusOr<std::unique_ptr<RingModel>> MakeLoneModel(const TrainingTask& task,
                                                         const PlannedTask& planned);

// plan.window = SmallestWindow.
absl::Status UseSmallestWindow(PlannedTask& planned);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_RING_RUNNER_H_
