// Backward: what the graph's edges and hooks call, and the end of a micro-batch.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "integrations/torch/ring_model_impl.h"

namespace ringzero {
namespace {

// Bytes of the memory that a gradient keeps alive: its `keep` is a tensor (TakeGradients).
int64_t BytesOf(const GradientPart& part) {
  return static_cast<int64_t>(static_cast<const at::Tensor*>(part.keep.get())->storage().nbytes());
}

}  // namespace

// A call from a graph: is it this micro-batch's only backward, on the right thread?
absl::Status RingModel::Impl::CheckGraph(EdgePlace place) const {
  if (std::this_thread::get_id() != thread_) {
    return FailedPrecondition(
        "the backward of ", NameOf(place.stage),
        " runs on another thread than its forward: parameters belong to one computing thread");
  }
  if (place.pass != pass_ || state_ != State::kForwarded || stages_[place.stage].closed) {
    return FailedPrecondition(
        "a second backward through ", NameOf(place.stage),
        ": its parameters are released and its gradients handed over; a micro-batch "
        "has one backward");
  }
  if (torch::autograd::get_current_graph_task_keep_graph()) {
    return absl::FailedPreconditionError(
        "backward with retain_graph or create_graph: the graph cannot be used again, as the "
        "stages' "
        "parameters are released after their backward");
  }
  return absl::OkStatus();
}

void RingModel::Impl::OnStageBegin(EdgePlace place) {
  const int j = place.stage;
  ThrowIfError(CheckGraph(place));
  if (stages_[j].begun) {
    throw RingError(
        FailedPrecondition("a second backward through ", NameOf(j), " before the first has ended"));
  }
  if (!std::exchange(backward_begun_, true)) {
    // Callbacks run only if the whole backward succeeds: backward_done_ says this and no more.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [done = backward_done_] { *done = true; });
  }
  for (int i = next_backward_; i > j; --i) ThrowIfError(CloseStage(i));
  ThrowIfError(BeginBackward(j));
}

void RingModel::Impl::OnStageEnd(EdgePlace place) {
  ThrowIfError(CheckGraph(place));
  ThrowIfError(CloseStage(place.stage));
}

void RingModel::Impl::OnGradient(int j, int parameter) {
  const RingStage& stage = stages_[j];
  const std::string& name = layouts_[j].parameters[parameter].name;
  if (std::this_thread::get_id() != thread_) {
    throw RingError(FailedPrecondition("the gradient of \"", name,
                                       "\" was computed on another thread than the forward"));
  }
  if (state_ != State::kForwarded || stage.closed) {
    stage.parameters[parameter].mutable_grad().reset();
    throw RingError(FailedPrecondition("the gradient of \"", name, "\" came after the backward of ",
                                       NameOf(j), " was over, and its gradients handed over"));
  }
}

absl::Status RingModel::Impl::BeginBackward(int j) {
  RZ_ASSIGN_OR_RETURN(const std::vector<StageCopy> copies, engine_->BeginBackward(StageId(j)));
  for (const StageCopy& copy : copies) {
    RingStage& stage = stages_[copy.stage.value];
    const std::byte* version = copy.parameters.data();
    // Torch's version counters do not notice a moved storage: only this check finds other values.
    if (stage.memory->Fingerprint(version) != stage.fingerprint) {
      return Internal("the backward of ", NameOf(j), " got other values of ",
                      NameOf(copy.stage.value),
                      " than its forward read: a wrong version, or somebody wrote to a parameter");
    }
    if (copy.stage.value == j) {
      stage.memory->PointAt(version);
    } else {
      stage.memory->PointSharedAt(version);
    }
  }
  stages_[j].begun = true;
  next_backward_ = j;
  return absl::OkStatus();
}

absl::Status RingModel::Impl::CloseStage(int j) {
  if (!stages_[j].begun) RZ_RETURN_IF_ERROR(BeginBackward(j));
  absl::StatusOr<StageGradient> gradient = TakeGradients(j);
  stages_[j].memory->Release();
  if (!gradient.ok()) return gradient.status();
  stages_[j].closed = true;
  next_backward_ = j - 1;
  StageDone done{.stage = StageId(j)};
  for (const GradientPart& part : *gradient) {
    done.gradient_bytes += BytesOf(part);
    if (options_.on_stage_done) done.gradients.push_back(part.data);
  }
  RZ_RETURN_IF_ERROR(AtStage(j, engine_->EndBackward(StageId(j), *std::move(gradient))));
  if (options_.on_stage_done) options_.on_stage_done(done);
  return absl::OkStatus();
}

absl::Status RingModel::Impl::CheckBackwardDone() const {
  bool trains = false;
  for (const StagePlan& stage : options_.planned.plan.stages)
    trains = trains || stage.sum_bytes > 0;
  if (!trains || *backward_done_) return absl::OkStatus();
  if (!backward_begun_) {
    return absl::FailedPreconditionError(
        "EndMicroBatch without a backward of the outputs: call loss.backward() first");
  }
  return FailedPrecondition(
      "the backward stopped within ", NameOf(std::max(0, next_backward_)),
      " and cannot be repeated, as other workers may have the gradients of the stages "
      "after it: the "
      "run has to end");
}

absl::Status RingModel::Impl::EndMicroBatch(const std::vector<double>& metrics) {
  if (state_ == State::kIdle || state_ == State::kForward) {
    return absl::FailedPreconditionError("EndMicroBatch before the forward has ended");
  }
  if (state_ == State::kFailed) return Annotate(failure_, "EndMicroBatch after a failure");
  if (!Evaluates()) {
    failure_ = CheckBackwardDone();
    RZ_RETURN_IF_ERROR(failure_);
    // Stages that the loss does not depend on still have their place in the program.
    for (int j = next_backward_; j >= 0 && plan_of(j).has_backward; --j) {
      RZ_RETURN_IF_ERROR(CloseStage(j));
    }
  }
  RZ_RETURN_IF_ERROR(engine_->EndMicroBatch(metrics));
  EndPass();
  return absl::OkStatus();
}

void RingModel::Impl::EndPass() {
  state_ = State::kIdle;
  StopTaking();
  for (RingStage& stage : stages_) stage.memory->Release();
}

}  // namespace ringzero
