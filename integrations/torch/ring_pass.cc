// Forward and evaluation passes: acquire a stage, run its layers, release it.
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/status.h"
#include "integrations/torch/micro_batch_context.h"
#include "integrations/torch/ring_model_impl.h"

namespace ringzero {
namespace {

absl::Status CheckAutocast() {
  if (at::autocast::is_autocast_enabled(at::kCPU) && at::autocast::is_autocast_cache_enabled()) {
    return absl::FailedPreconditionError(
        "autocast caches converted weights by their tensor, which here holds another version in "
        "the "
        "next pass: switch the cache off (at::autocast::set_autocast_cache_enabled(false))");
  }
  return absl::OkStatus();
}

}  // namespace

std::string RingModel::Impl::NameOf(int j) const {
  return absl::StrCat("stage ", j, " (", plan_of(j).name, ")");
}

absl::Status RingModel::Impl::AtStage(int j, const absl::Status& status) const {
  return engine_->status().ok() ? Annotate(status, NameOf(j)) : status;
}

absl::Status RingModel::Impl::CheckBeforePass(const TensorList& inputs) {
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

absl::Status RingModel::Impl::CheckSamples(const TensorList& inputs) const {
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

absl::Status RingModel::Impl::SkipMicroBatch(const std::vector<double>& metrics) {
  if (state_ != State::kIdle) {
    return absl::FailedPreconditionError("SkipMicroBatch within a micro-batch that has begun");
  }
  return engine_->SkipMicroBatch(metrics);
}

bool RingModel::Impl::Evaluates() const { return lap_.kind == LapTask::Kind::kEvaluate; }

void RingModel::Impl::BeginPass(const TensorList& inputs) {
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
  }
  SetTraining(!Evaluates());
  if (!Evaluates()) StartTaking();
}

void RingModel::Impl::SetTraining(bool on) {
  if (training_ == on) return;
  training_ = on;
  // Parents come first: train(on) sets all below, then each gets the mode that it was built with.
  for (const Mode& mode : modes_) mode.module->train(on && mode.training);
}

TensorList RingModel::Impl::Forward(TensorList inputs) {
  BeginPass(inputs);
  try {
    const at::AutoGradMode mode(!Evaluates() && at::GradMode::is_enabled());
    const MicroBatchScope scope(
        {.seed = seed_, .iteration = lap_.iteration.value, .micro_batch = lap_.micro_batch});
    inputs = RunLayers(std::move(inputs));
  } catch (...) {
    FailPass();
    throw;
  }
  return inputs;
}

TensorList RingModel::Impl::RunLayers(TensorList inputs) {
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
void RingModel::Impl::BeginLayer(int layer) {
  EnterLayer(layer);
  if (!stages_[next_stage_].draws[layer - plan_of(next_stage_).first_layer]) return;
  random_.emplace(
      MixKeys({seed_, HashName("torch's generator"), static_cast<uint64_t>(lap_.iteration.value),
               static_cast<uint64_t>(lap_.micro_batch), static_cast<uint64_t>(layer)}));
}

TensorList RingModel::Impl::Enter(int layer, TensorList inputs) {
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

TensorList RingModel::Impl::Leave(int layer, TensorList outputs) {
  if (layer != next_layer_) {
    throw RingError(FailedPrecondition("the module's forward left mark ", layer,
                                       ", but it is in mark ", next_layer_));
  }
  random_.reset();
  ++next_layer_;
  if (next_layer_ != plan_of(next_stage_).end_layer) return outputs;
  return LeaveStage(next_stage_, std::move(outputs));
}

TensorList RingModel::Impl::EnterStage(int j, TensorList inputs) {
  // The engine knows the order, and its error names the stage that it expects.
  ThrowIfError(AtStage(j, Evaluates() ? EnterEvaluation(j) : EnterTraining(j)));
  next_stage_ = j;
  stage_open_ = true;
  if (j == 0 && compute_type() != at::kFloat) {
    inputs = CastFloating(std::move(inputs), compute_type());
  }
  if (Evaluates()) return inputs;
  return AttachEdgeIn(slot_, {j, pass_}, std::move(inputs));
}

absl::Status RingModel::Impl::EnterTraining(int j) {
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

absl::Status RingModel::Impl::EnterEvaluation(int j) {
  RZ_ASSIGN_OR_RETURN(const EvaluationCopy copy, engine_->BeginEvaluation(StageId(j)));
  RingStage& stage = stages_[j];
  for (const StageCopy& own : copy.copies) stage.memory->PointAt(own.parameters.data());
  if (layouts_[j].statistics_bytes == 0) return absl::OkStatus();
  if (!copy.statistics) return absl::InternalError("an evaluation came without statistics");
  stage.statistics->Load(copy.statistics.data());
  return absl::OkStatus();
}

TensorList RingModel::Impl::LeaveStage(int j, TensorList outputs) {
  if (!stage_open_ || next_stage_ != j) {
    throw RingError(FailedPrecondition(
        NameOf(j), " was left, but ",
        stage_open_ ? absl::StrCat(NameOf(next_stage_), " is the one that was entered")
                    : "no stage was entered"));
  }
  if (!Evaluates()) {
    ThrowIfError(CheckAutocast());
    if (plan_of(j).has_backward) {
      outputs = AttachEdgeOut(slot_, {j, pass_}, std::move(outputs));
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

absl::Status RingModel::Impl::LeaveTraining(int j) {
  RZ_ASSIGN_OR_RETURN(Buffer batch, stages_[j].statistics->TakeBatch());
  ReleaseStage(j);
  RZ_RETURN_IF_ERROR(engine_->EndForward(StageId(j), std::move(batch)));
  if (options_.on_stage_done) options_.on_stage_done({.stage = StageId(j)});
  return absl::OkStatus();
}

// Releases what stage j was the last to read: its own parameters, except those that a later stage
// reads too, and parameters of earlier stages.
void RingModel::Impl::ReleaseStage(int j) {
  const Plan& plan = options_.planned.plan;
  for (int i = 0; i <= j; ++i) {
    if (plan.last_use(StageId(i)).value == j) stages_[i].memory->Release();
  }
  if (plan.last_use(StageId(j)).value > j) stages_[j].memory->ReleaseUnshared();
}

void RingModel::Impl::FailPass() {
  state_ = State::kFailed;
  random_.reset();
  StopTaking();
  if (failure_.ok()) {
    const int stage = std::min(next_stage_, stage_count() - 1);
    failure_ = Annotate(CaughtStatus(), absl::StrCat("the forward of ", NameOf(stage), " failed"));
  }
  for (RingStage& stage : stages_) stage.memory->Release();
}

}  // namespace ringzero
