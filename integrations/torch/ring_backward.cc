// Backward: what the graph's edges and hooks call, gradients (products that go into the sum at once,
// and tensors that are handed over), and the end of a micro-batch.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"
#include "integrations/torch/linear.h"
#include "integrations/torch/ring_model_impl.h"
#include "zero/gradient_sum.h"

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

void RingModel::Impl::FindWeights() {
  std::map<std::pair<int, int>, int> names;
  for (const auto& [name, place] : places_) ++names[{place.stage, place.parameter}];
  for (const auto& [place, count] : names) {
    const auto [j, i] = place;
    const at::Tensor& tensor = stages_[j].parameters[i];
    const bool tied = count > 1;
    if (tied || tensor.dim() != 2 || !tensor.requires_grad() || !tensor.is_contiguous()) continue;
    weights_[tensor.unsafeGetTensorImpl()] = {.place = {j, i}};
  }
}

void RingModel::Impl::StartTaking() {
  for (auto& [tensor, weight] : weights_) weight = {.place = weight.place};
  for (RingStage& stage : stages_) stage.taken.clear();
  SetCurrentGradientSink(sink_slot_);
}

void RingModel::Impl::StopTaking() {
  if (CurrentGradientSink() == this) SetCurrentGradientSink(nullptr);
}

int64_t RingModel::Impl::OnUse(const at::Tensor& weight) {
  const auto found = weights_.find(weight.unsafeGetTensorImpl());
  if (found != weights_.end()) ++found->second.uses;
  return pass_;
}

bool RingModel::Impl::TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
                                  const at::Tensor& x) {
  const auto found = weights_.find(weight.unsafeGetTensorImpl());
  // Autograd adds up several uses of a weight: their order is autograd's own.
  if (found == weights_.end() || found->second.uses != 1 || use != pass_) return false;
  const auto [j, parameter] = found->second.place;
  RingStage& stage = stages_[j];
  const bool open = state_ == State::kForwarded && stage.begun && !stage.closed;
  if (!open || std::this_thread::get_id() != thread_) return false;
  if (grad.scalar_type() != at::kFloat || x.scalar_type() != at::kFloat) return false;
  found->second.taken = true;

  // Only into fp32 sums: narrower sums are rounded at random, and a product adds without that.
  const bool joins = layouts_[j].sum_type == ValueType::kFp32 && !options_.products_first;
  if (std::byte* sum = joins ? engine_->OpenSum(StageId(j)) : nullptr; sum != nullptr) {
    const ParameterSpec& spec = layouts_[j].parameters[parameter];
    at::Tensor values = at::from_blob(sum + spec.sum_offset_bytes, weight.sizes(), at::kFloat);
    if (!HasContribution(layouts_[j], sum, spec.sum_index)) {
      at::mm_out(values, grad.t(), x);
      MarkContribution(layouts_[j], spec.sum_index, sum);
      return true;
    }
    if (AddProduct(grad, x, values)) return true;
  }
  auto product = std::make_shared<at::Tensor>(grad.t().mm(x));
  const float* data = product->const_data_ptr<float>();
  stage.taken.push_back({.parameter = parameter, .data = data, .keep = std::move(product)});
  return true;
}

// A gradient that cannot be taken is dropped with its error.
absl::StatusOr<StageGradient> RingModel::Impl::TakeGradients(int j) {
  RingStage& stage = stages_[j];
  for (size_t i = 0; i < stage.parameters.size(); ++i) {
    at::Tensor& gradient = stage.parameters[i].mutable_grad();
    if (!layouts_[j].parameters[i].trainable || !gradient.defined()) continue;
    auto values = std::make_shared<at::Tensor>(std::move(gradient));
    gradient.reset();
    RZ_RETURN_IF_ERROR(CheckGradient(j, i, *values));
    if (values->strides() != stage.parameters[i].strides()) {
      // Gradients travel in the order of the parameter's own memory.
      const at::NoGradGuard no_grad;
      at::Tensor ordered =
          at::empty_strided(values->sizes(), stage.parameters[i].strides(), values->options());
      ordered.copy_(*values);
      *values = std::move(ordered);
    }
    const void* data = values->const_data_ptr();
    stage.taken.push_back({.parameter = static_cast<int>(i),
                           .data = data,
                           .keep = std::move(values),
                           .type = options_.planned.precision.compute});
  }
  return std::exchange(stage.taken, {});
}

absl::Status RingModel::Impl::CheckGradient(int j, size_t i, const at::Tensor& gradient) const {
  const std::string& name = layouts_[j].parameters[i].name;
  const at::Tensor& parameter = stages_[j].parameters[i];
  const auto weight = weights_.find(parameter.unsafeGetTensorImpl());
  if (weight != weights_.end() && weight->second.taken) {
    return FailedPrecondition("\"", name,
                              "\" is read by ringzero::Linear and elsewhere: its gradient has "
                              "parts, which autograd has to add up; read it by at::linear");
  }
  if (gradient.layout() != at::kStrided || gradient.scalar_type() != parameter.scalar_type() ||
      gradient.sizes() != parameter.sizes()) {
    return FailedPrecondition("the gradient of \"", name, "\" must be dense ",
                              ToString(options_.planned.precision.compute),
                              " of the parameter's shape");
  }
  return absl::OkStatus();
}

void RingModel::Impl::DropGradients(int j) {
  for (const at::Tensor& parameter : stages_[j].parameters) {
    if (parameter.requires_grad()) parameter.mutable_grad().reset();
  }
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
