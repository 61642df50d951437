// Runs a plan for one worker that exchanges nothing, on parameters that take no memory.
#include "integrations/torch/pass_memory.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/buffer.h"
#include "base/status.h"
#include "integrations/torch/allocation_recorder.h"
#include "p2p/mapping.h"

namespace ringzero {
namespace {

// Zeros that are only read: the kernel has one page of them for all.
class ZeroCell final : public BufferCell {
 public:
  ZeroCell(Mapping memory, size_t bytes)
      : BufferCell(memory.data(), bytes), memory_(std::move(memory)) {}
  void AddHolder() override { holders_.fetch_add(1, std::memory_order_relaxed); }
  void DropHolder() override {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  int holders() const override { return holders_.load(std::memory_order_acquire); }

 private:
  const Mapping memory_;
  std::atomic<int> holders_{1};
};

absl::StatusOr<Buffer> MakeZeros(size_t bytes) {
  RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Anonymous(bytes));
  return Buffer(new ZeroCell(std::move(memory), bytes));
}

// The stages and nothing else of the plan.
Plan PlanAlone(const Plan& plan) {
  Plan alone = plan;
  alone.workers = 1;
  alone.laps = 1;
  alone.rule = Rule::kDp;
  alone.slack = 0;
  alone.pending = 1;
  alone.stagger = false;
  alone.retain = 0;
  alone.exchange = false;
  alone.iterations = 3;
  alone.evaluation = {};
  alone.collection = {};
  for (StagePlan& stage : alone.stages) stage.owner = WorkerId(0);
  return alone;
}

absl::StatusOr<std::unique_ptr<RingModel>> MakeAlone(const PlannedRun& run,
                                                     const PassMemoryOptions& options,
                                                     AllocationRecorder& recorder) {
  RingModelOptions model{.layers = run.layers,
                         .description = run.model,
                         .planned = run.planned,
                         .metrics_count = options.metrics_count};
  model.planned.plan = PlanAlone(run.planned.plan);
  model.parameter_memory = MakeZeros;
  model.on_stage_done = [&recorder](const StageDone& done) { recorder.EndStage(done.gradients); };
  return RingModel::Create(std::move(model));
}

absl::StatusOr<LapTask> NextTraining(RingModel& ring) {
  RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
  if (lap.kind == LapTask::Kind::kTrain) return lap;
  return absl::InternalError("measuring memory: the plan of one worker ended early");
}

}  // namespace

absl::StatusOr<PassMemory> MeasurePass(const PlannedRun& run, const PassMemoryOptions& options) {
  using Gradients = PassTimeline::Gradients;
  AllocationRecorder recorder;
  PassMemory memory;
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<RingModel> ring, MakeAlone(run, options, recorder));
  memory.setup = recorder.Take().Peak(Gradients::kDropped);
  // The first one makes what the libraries keep for the next.
  for (int i = 0; i < 2; ++i) {
    recorder.Take();
    RZ_ASSIGN_OR_RETURN(const LapTask lap, NextTraining(*ring));
    RZ_RETURN_IF_ERROR(Guard([&] { return options.train(*ring, lap); }));
  }
  const PassTimeline pass = recorder.Take();
  memory.activations = pass.Peak(Gradients::kNone);
  memory.with_gradients = pass.Peak(Gradients::kDropped);
  memory.with_waiting_gradients = pass.Peak(Gradients::kWait, run.planned.plan.pending);
  RZ_ASSIGN_OR_RETURN(const LapTask lap, NextTraining(*ring));
  if (options.evaluate) {
    const at::NoGradGuard no_grad;
    RZ_RETURN_IF_ERROR(Guard([&] { return options.evaluate(*ring, lap); }));
    memory.evaluation = recorder.Take().Peak(Gradients::kNone);
  }
  return memory;
}

}  // namespace ringzero
