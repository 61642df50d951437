// A micro-batch: forward and evaluation stage by stage, what the autograd graph calls back,
// gradients (products that go into the sum at once, and tensors that are handed over), and its end.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status.h"
#include "integrations/torch/ring_model_impl.h"
#include "zero/gradient_sum.h"

namespace ringzero {
namespace {

absl::Status CheckAutocast() {
  if (at::autocast::is_autocast_enabled(at::kCPU) && at::autocast::is_autocast_cache_enabled()) {
    return absl::FailedPreconditionError(
        "autocast caches converted weights by their tensor, which here holds another version in "
        "the next pass: switch the cache off (at::autocast::set_autocast_cache_enabled(false))");
  }
  return absl::OkStatus();
}

using torch::autograd::variable_list;

enum class Side { kIn, kOut };

// The autograd node at a stage's border. The backward of the one where the stage begins is
// OnStageEnd; the backward of the other is OnStageBegin.
//
// A node of our own rather than torch::autograd::Function: it passes undefined gradients on as they
// are and makes no view of its input, so a graph with edges computes the very bits of one without.
class EdgeNode : public torch::autograd::Node {
 public:
  EdgeNode(std::weak_ptr<RingModelImpl> model, EdgePlace place, Side side,
           torch::autograd::edge_list&& next)
      : Node(std::move(next)), model_(std::move(model)), place_(place), side_(side) {}

  variable_list apply(variable_list&& gradients) override {
    const std::shared_ptr<RingModelImpl> model = model_.lock();
    TORCH_CHECK(model != nullptr, "backward through stage ", place_.stage,
                " of a RingModel that is gone");
    side_ == Side::kIn ? model->OnStageEnd(place_) : model->OnStageBegin(place_);
    return std::move(gradients);
  }

  std::string name() const override {
    return side_ == Side::kIn ? "RingZeroEdgeIn" : "RingZeroEdgeOut";
  }

 private:
  std::weak_ptr<RingModelImpl> model_;
  EdgePlace place_;
  Side side_;
};

// Only tensors that require a gradient pass through the node; without any there is no node.
TensorList AttachEdge(const std::shared_ptr<RingModelImpl>& model, EdgePlace place, Side side,
                      TensorList tensors) {
  if (!at::GradMode::is_enabled()) return tensors;
  const auto learns = [](const at::Tensor& x) { return x.defined() && x.requires_grad(); };
  variable_list through;
  std::ranges::copy_if(tensors, std::back_inserter(through), learns);
  if (through.empty()) return tensors;
  const std::shared_ptr<torch::autograd::Node> node(
      new EdgeNode(model, place, side, torch::autograd::collect_next_edges(through)),
      torch::autograd::deleteNode);
  for (at::Tensor& x : tensors) {
    if (!learns(x)) continue;
    // Not x itself: x keeps its place in the graph of the stage that made it.
    x = x.detach();
    torch::autograd::create_gradient_edge(x, node);
  }
  return tensors;
}

}  // namespace

std::string RingModelImpl::NameOf(int j) const {
  return absl::StrCat("stage ", j, " (", plan_of(j).name, ")");
}

absl::Status RingModelImpl::AtStage(int j, const absl::Status& status) const {
  return engine_->status().ok() ? Annotate(status, NameOf(j)) : status;
}

absl::Status RingModelImpl::CheckBeforePass(const TensorList& inputs) {
  if (state_ != State::kIdle) {
    if (!failure_.ok()) return Annotate(failure_, "a forward after a failure");
    return absl::FailedPreconditionError(
        "a forward within a micro-batch that has had its own: EndMicroBatch is missing");
  }
  RZ_ASSIGN_OR_RETURN(lap_, engine_->NextLap());
  if (lap_.kind != LapTask::Kind::kTrain && !Evaluates()) {
    return absl::FailedPreconditionError("a forward, but the program has no more micro-batches");
  }
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) {
      return absl::InvalidArgumentError(
          "an input of the model requires a gradient: gradients of inputs are not computed");
    }
  }
  RZ_RETURN_IF_ERROR(CheckSamples(inputs));
  return CheckAutocast();
}

absl::Status RingModelImpl::CheckSamples(const TensorList& inputs) const {
  if (!lap_.samples.has_value()) return absl::OkStatus();
  const std::string name =
      absl::StrCat("micro-batch ", lap_.micro_batch, " of iteration ", lap_.iteration.value);
  if (lap_.missing()) {
    return FailedPrecondition(name, " has no samples: SkipMicroBatch stands for it");
  }
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) continue;
    const int64_t found = input.dim() == 0 ? 0 : input.size(0);
    if (found == *lap_.samples) return absl::OkStatus();
    return InvalidArgument(name, " has ", *lap_.samples,
                           " samples by the plan, but the first dimension "
                           "of the model's first input is ",
                           found);
  }
  return absl::OkStatus();
}

absl::Status RingModelImpl::SkipMicroBatch(const std::vector<double>& metrics) {
  if (state_ != State::kIdle) {
    return absl::FailedPreconditionError("SkipMicroBatch within a micro-batch that has begun");
  }
  return engine_->SkipMicroBatch(metrics);
}

void RingModelImpl::BeginPass(const TensorList& inputs) {
  ThrowIfError(CheckBeforePass(inputs));
  ++pass_;
  state_ = State::kForward;
  thread_ = std::this_thread::get_id();
  next_stage_ = 0;
  next_backward_ = stage_count() - 1;
  stage_open_ = false;
  backward_begun_ = false;
  backward_done_ = std::make_shared<bool>(false);
  for (int j = 0; j < stage_count(); ++j) {
    DropGradients(j);
    RingStage& stage = stages_[j];
    stage.begun = stage.closed = false;
    stage.taken.clear();
  }
  SetTraining(!Evaluates());
  if (Evaluates()) return;
  for (auto& [tensor, weight] : weights_) weight = {.place = weight.place};
  SetCurrentGradientSink(std::shared_ptr<GradientSink>(self_, this));
}

void RingModelImpl::SetTraining(bool on) {
  if (training_ == on) return;
  training_ = on;
  // Parents come first: train(on) sets all below, then each gets the mode that it was built with.
  for (const auto& [module, trains] : modes_) module->train(on && trains);
}

TensorList RingModelImpl::Forward(TensorList inputs) {
  BeginPass(inputs);
  try {
    const at::AutoGradMode mode(!Evaluates() && at::GradMode::is_enabled());
    const MicroBatchScope scope(
        {.seed = seed_, .iteration = lap_.iteration.value, .micro_batch = lap_.micro_batch});
    inputs = RunLayers(std::move(inputs));
  } catch (...) {
    state_ = State::kFailed;
    random_.reset();
    StopTaking();
    if (failure_.ok()) {
      const int stage = std::min(next_stage_, stage_count() - 1);
      failure_ =
          Annotate(CaughtStatus(), absl::StrCat("the forward of ", NameOf(stage), " failed"));
    }
    for (RingStage& stage : stages_) stage.memory->Release();
    throw;
  }
  return inputs;
}

TensorList RingModelImpl::RunLayers(TensorList inputs) {
  if (auto* marked = dynamic_cast<MarkedLayer*>(stages_[0].layers[0].get()); marked != nullptr) {
    next_layer_ = 0;
    inputs = marked->RunWhole(*this, std::move(inputs));
    if (state_ == State::kForwarded) return inputs;
    throw RingError(FailedPrecondition("the module's forward ended, but the plan expects ",
                                       NameOf(next_stage_), " next"));
  }
  for (int j = 0; j < stage_count(); ++j) {
    inputs = EnterStage(j, std::move(inputs));
    for (size_t i = 0; i < stages_[j].layers.size(); ++i) {
      BeginLayer(plan_of(j).first_layer + static_cast<int>(i));
      inputs = stages_[j].layers[i]->forward(std::move(inputs));
      random_.reset();
    }
    inputs = LeaveStage(j, std::move(inputs));
  }
  return inputs;
}

// Within its stage: what the layer draws depends on the place in the training alone.
void RingModelImpl::BeginLayer(int layer) {
  EnterLayer(layer);
  if (!stages_[next_stage_].draws[layer - plan_of(next_stage_).first_layer]) return;
  random_.emplace(
      MixKeys({seed_, HashName("torch's generator"), static_cast<uint64_t>(lap_.iteration.value),
               static_cast<uint64_t>(lap_.micro_batch), static_cast<uint64_t>(layer)}));
}

TensorList RingModelImpl::Enter(int layer, TensorList inputs) {
  const auto name = [this](int i) {
    const bool exists = i >= 0 && i < static_cast<int>(options_.layers.size());
    return exists ? absl::StrCat("mark ", i, " (", options_.layers[i].name, ")")
                  : absl::StrCat("mark ", i, ", which does not exist");
  };
  if (layer != next_layer_ || state_ != State::kForward) {
    throw RingError(FailedPrecondition(
        "the module's forward went to ", name(layer), ", but the plan expects ",
        state_ == State::kForward ? absl::StrCat(name(next_layer_), " of ", NameOf(next_stage_))
                                  : "the end"));
  }
  if (layer == plan_of(next_stage_).first_layer) {
    inputs = EnterStage(next_stage_, std::move(inputs));
  }
  BeginLayer(layer);
  return inputs;
}

TensorList RingModelImpl::Leave(int layer, TensorList outputs) {
  if (state_ != State::kForward || layer != next_layer_) {
    const bool over = state_ != State::kForward;
    throw RingError(
        FailedPrecondition("the module's forward left mark ", layer, ", but it is ",
                           over ? "at the end" : absl::StrCat("in mark ", next_layer_)));
  }
  random_.reset();
  ++next_layer_;
  if (next_layer_ != plan_of(next_stage_).end_layer) return outputs;
  return LeaveStage(next_stage_, std::move(outputs));
}

TensorList RingModelImpl::EnterStage(int j, TensorList inputs) {
  // The engine knows the order, and its error names the stage that it expects.
  ThrowIfError(AtStage(j, Evaluates() ? EnterEvaluation(j) : EnterTraining(j)));
  stage_open_ = true;
  if (j == 0 && compute_type() != at::kFloat) {
    inputs = CastFloating(std::move(inputs), compute_type());
  }
  if (Evaluates()) return inputs;
  return AttachEdge(self_, {j, pass_}, Side::kIn, std::move(inputs));
}

absl::Status RingModelImpl::EnterTraining(int j) {
  RZ_ASSIGN_OR_RETURN(const std::vector<StageCopy> copies, engine_->BeginForward(StageId(j)));
  RingStage& stage = stages_[j];
  for (const StageCopy& copy : copies) {
    RZ_CHECK(copy.stage.value == j, "a forward gets its own copy only");
    // The engine keeps the copy until EndForward, so that a pointer is enough.
    stage.memory->PointAt(copy.parameters.data());
    stage.fingerprint = stage.memory->Fingerprint(copy.parameters.data());
  }
  stage.statistics->BeginForward();
  return absl::OkStatus();
}

absl::Status RingModelImpl::EnterEvaluation(int j) {
  RZ_ASSIGN_OR_RETURN(const EvaluationCopy copy, engine_->BeginEvaluation(StageId(j)));
  RingStage& stage = stages_[j];
  for (const StageCopy& own : copy.copies) stage.memory->PointAt(own.parameters.data());
  if (layouts_[j].statistics_bytes == 0) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(const SharedBuffer statistics, OrInitial(StageId(j), copy.statistics));
  stage.statistics->Load(statistics.data());
  return absl::OkStatus();
}

TensorList RingModelImpl::LeaveStage(int j, TensorList outputs) {
  if (!stage_open_) {  // a ready module's forward left a mark that it had not entered
    throw RingError(FailedPrecondition(NameOf(j), " was left, but no stage was entered"));
  }
  if (!Evaluates()) {
    ThrowIfError(CheckAutocast());
    if (plan_of(j).has_backward) {
      outputs = AttachEdge(self_, {j, pass_}, Side::kOut, std::move(outputs));
    }
    ThrowIfError(AtStage(j, LeaveTraining(j)));
  } else {
    ReleaseStage(j);
    ThrowIfError(AtStage(j, engine_->EndEvaluation(StageId(j))));
  }
  stage_open_ = false;
  next_stage_ = j + 1;
  if (next_stage_ < stage_count()) return outputs;
  state_ = State::kForwarded;
  const Precision& precision = options_.planned.precision;
  // An evaluation has no gradients to scale.
  const double scale = Evaluates() ? 1 : engine_->LossScaleOf(lap_.iteration);
  if (precision.compute == ValueType::kFp32 && scale == 1) return outputs;
  return OutputsForLoss(std::move(outputs), scale);
}

absl::Status RingModelImpl::LeaveTraining(int j) {
  RZ_ASSIGN_OR_RETURN(Buffer batch, stages_[j].statistics->TakeBatch());
  ReleaseStage(j);
  RZ_RETURN_IF_ERROR(engine_->EndForward(StageId(j), std::move(batch)));
  if (options_.on_stage_done) options_.on_stage_done({.stage = StageId(j)});
  return absl::OkStatus();
}

// Releases what stage j was the last to read: its own parameters, except those that a later stage
// reads too, and parameters of earlier stages.
void RingModelImpl::ReleaseStage(int j) {
  const Plan& plan = options_.planned.plan;
  for (int i = 0; i <= j; ++i) {
    if (plan.last_use(StageId(i)).value == j) stages_[i].memory->Release();
  }
  if (plan.last_use(StageId(j)).value > j) stages_[j].memory->Release(Bound::kUnshared);
}

void RingModelImpl::HookGradient(int stage, int parameter, const at::Tensor& tensor) {
  const auto tell = [self = std::weak_ptr(self_), stage, parameter](
                        const variable_list& outputs, const variable_list& gradients) {
    const std::shared_ptr<RingModelImpl> model = self.lock();
    const bool some = !gradients.empty() && gradients[0].defined();
    if (some && model != nullptr) model->OnGradient(stage, parameter);
    return outputs;
  };
  accumulators_.push_back(torch::autograd::impl::grad_accumulator(tensor));
  accumulators_.back()->add_post_hook(
      std::make_unique<torch::autograd::utils::LambdaPostHook>(tell));
}

// A call from a graph: is it this micro-batch's only backward, on the right thread?
absl::Status RingModelImpl::CheckGraph(EdgePlace place) const {
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
        "stages' parameters are released after their backward");
  }
  return absl::OkStatus();
}

void RingModelImpl::OnStageBegin(EdgePlace place) {
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

void RingModelImpl::OnStageEnd(EdgePlace place) {
  ThrowIfError(CheckGraph(place));
  ThrowIfError(CloseStage(place.stage));
}

void RingModelImpl::OnGradient(int j, int parameter) {
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

absl::Status RingModelImpl::BeginBackward(int j) {
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
    stage.memory->PointAt(version, copy.stage.value == j ? Bound::kAll : Bound::kShared);
  }
  stages_[j].begun = true;
  next_backward_ = j;
  return absl::OkStatus();
}

absl::Status RingModelImpl::CloseStage(int j) {
  if (!stages_[j].begun) RZ_RETURN_IF_ERROR(BeginBackward(j));
  absl::StatusOr<StageGradient> gradient = TakeGradients(j);
  stages_[j].memory->Release();
  if (!gradient.ok()) return gradient.status();
  stages_[j].closed = true;
  next_backward_ = j - 1;
  StageDone done{.stage = StageId(j)};
  for (const GradientPart& part : *gradient) {
    const auto* kept = static_cast<const at::Tensor*>(part.keep.get());  // TakeGradients
    done.gradient_bytes += static_cast<int64_t>(kept->storage().nbytes());
    if (options_.on_stage_done) done.gradients.push_back(part.data);
  }
  RZ_RETURN_IF_ERROR(AtStage(j, engine_->EndBackward(StageId(j), *std::move(gradient))));
  if (options_.on_stage_done) options_.on_stage_done(done);
  return absl::OkStatus();
}

void RingModelImpl::FindWeights() {
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

void RingModelImpl::StopTaking() {
  if (CurrentGradientSink() == this) SetCurrentGradientSink({});
}

int64_t RingModelImpl::OnUse(const at::Tensor& weight) {
  const auto found = weights_.find(weight.unsafeGetTensorImpl());
  if (found != weights_.end()) ++found->second.uses;
  return pass_;
}

bool RingModelImpl::TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
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
absl::StatusOr<StageGradient> RingModelImpl::TakeGradients(int j) {
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

absl::Status RingModelImpl::CheckGradient(int j, size_t i, const at::Tensor& gradient) const {
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

void RingModelImpl::DropGradients(int j) {
  for (const at::Tensor& parameter : stages_[j].parameters) {
    // Undefined: its layer was not built.
    if (parameter.defined() && parameter.requires_grad()) parameter.mutable_grad().reset();
  }
}

absl::Status RingModelImpl::CheckBackwardDone() const {
  const bool trains = std::ranges::any_of(
      options_.planned.plan.stages, [](const StagePlan& stage) { return stage.sum_bytes > 0; });
  if (!trains || *backward_done_) return absl::OkStatus();
  if (!backward_begun_) {
    return absl::FailedPreconditionError(
        "EndMicroBatch without a backward of the outputs: call loss.backward() first");
  }
  return FailedPrecondition(
      "the backward stopped within ", NameOf(std::max(0, next_backward_)),
      " and cannot be repeated, as other workers may have the gradients of the stages "
      "after it: the run has to end");
}

absl::Status RingModelImpl::CloseMicroBatch(const std::vector<double>& metrics) {
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
  state_ = State::kIdle;
  StopTaking();
  for (RingStage& stage : stages_) stage.memory->Release();
  return absl::OkStatus();
}

}  // namespace ringzero
