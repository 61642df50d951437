// A run goes on from a checkpoint with other stages and workers, under each rule. It has the bits of one
// loop, which reads versions as the first plan says, and from the checkpoint on as the second plan says.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/checkpoint/checkpoint.h"
#include "integrations/cli/parameter_files.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/reference_trainer.h"
#include "tests/support/ring_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tasks.h"

namespace ringzero {
namespace {

struct Shape {
  int workers, laps, stages;
};

constexpr int kSaved = 3, kIterations = 6;

PlanRequest RequestOf(const TrainingTask& task, Rule rule, const Shape& shape) {
  return {.workers = shape.workers,
          .laps = shape.laps,
          .rule = rule,
          .stages = shape.stages,
          .optimizer = task.optimizer};
}

// Trains the first iterations, and saves the version behind them.
absl::Status Save(const TrainingTask& task, const PlannedTask& planned, const std::string& folder) {
  const Plan& plan = planned.plan();
  const auto prepare = [&](RingModelOptions& options) -> absl::Status {
    const CheckpointState state{.rule = ToString(plan.rule),
                                .optimizer = "AdamW",
                                .precision = "fp32",
                                .workers = plan.workers,
                                .stages = plan.stage_count(),
                                .micro_batches = plan.workers * plan.laps,
                                .plan = PlanToString(plan)};
    RZ_ASSIGN_OR_RETURN(options.engine.saver,
                        MakeCheckpointSaver({.folder = folder,
                                             .run = state,
                                             .layouts = planned.planned.layouts,
                                             .optimizer = task.optimizer}));
    return absl::OkStatus();
  };
  return RunRing(task, planned, {.prepare = prepare}).status();
}

absl::StatusOr<TrainingResult> GoOn(const TrainingTask& task, const PlannedTask& planned,
                                    const std::string& folder) {
  RZ_ASSIGN_OR_RETURN(
      const auto checkpoint,
      Checkpoint::OpenNewest(folder, [](const absl::Status& why) { ADD_FAILURE() << why; }));
  const auto prepare = [&](RingModelOptions& options) -> absl::Status {
    options.engine.beginning =
        BeginningOf(checkpoint, planned.plan(), planned.planned.layouts, task.optimizer);
    RZ_ASSIGN_OR_RETURN(options.preset,
                        PresetOf(checkpoint->path(), checkpoint->model(), planned.description));
    return absl::OkStatus();
  };
  return RunRing(task, planned, {.prepare = prepare});
}

TEST(ReshardingTest, OtherStagesAndWorkersGoOnAsALoopThatSwitches) {
  TrainingTask task = ConvTask();
  task.optimizer.type = OptimizerOptions::Type::kAdamW;
  task.optimizer.learning_rate = 0.01;
  const Shape wide{4, 1, 4};
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    TrainingResult same;
    for (const auto& [from, to] :
         {std::pair(wide, wide), std::pair(wide, Shape{4, 1, 6}), std::pair(wide, Shape{2, 2, 3}),
          std::pair(Shape{2, 2, 5}, wide), std::pair(wide, Shape{1, 4, 2}),
          std::pair(Shape{1, 4, 6}, Shape{4, 1, 3})}) {
      SCOPED_TRACE(absl::StrCat(ToString(rule), ": ", from.workers, " workers, ", from.stages,
                                " stages; then ", to.workers, ", ", to.stages));
      const TemporaryFolder folder;
      PlanRequest request = RequestOf(task, rule, from);
      request.iterations = kSaved;
      request.checkpoint = {.at_end = true};
      RZ_ASSIGN(const PlannedTask first, PlanTask(task, request));
      request = RequestOf(task, rule, to);
      request.first_iteration = kSaved;
      request.iterations = kIterations;
      RZ_ASSIGN(const PlannedTask second, PlanTask(task, request));
      const absl::Status saved = Save(task, first, folder.path());
      ASSERT_TRUE(saved.ok()) << saved;
      RZ_ASSIGN(const TrainingResult ring, GoOn(task, second, folder.path()));
      const TrainingResult wanted = TrainReference(task, second.plan(), &first.plan());
      EXPECT_EQ(ring.losses, wanted.losses);
      EXPECT_EQ(ring.parameters, wanted.parameters);
      EXPECT_EQ(ring.statistics, wanted.statistics);
      if (same.parameters.empty()) same = wanted;
      if (rule == Rule::kDp) {
        EXPECT_EQ(ring.parameters, same.parameters);
      }
    }
  }
}

}  // namespace
}  // namespace ringzero
