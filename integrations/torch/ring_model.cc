// Creates a RingModel: modules without memory, and the engine. The public calls, and what a
// collection shows: one named tensor after the other.
#include "integrations/torch/ring_model.h"

#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/ring_model_impl.h"
#include "p2p/job/limits.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {
namespace {

// From the parameter's own storage order to row-major.
std::vector<float> RowMajor(const ParameterSpec& spec, const std::byte* from) {
  std::vector<float> values(static_cast<size_t>(spec.numel));
  at::from_blob(values.data(), spec.shape, at::TensorOptions(at::kFloat))
      .copy_(at::from_blob(const_cast<std::byte*>(from), spec.shape, spec.strides,
                           at::TensorOptions(at::kFloat)));
  return values;
}

int64_t CountAt(const std::byte* from) {
  int64_t count = 0;
  std::memcpy(&count, from, sizeof(count));
  return count;
}

absl::Status ShowParameters(const StageLayout& layout, const CollectedPart& part,
                            const SharedBuffer& statistics, const Visitor& visit) {
  for (const ParameterSpec& spec : layout.parameters) {
    RZ_RETURN_IF_ERROR(
        visit({.kind = NamedValues::Kind::kParameter,
               .name = spec.name,
               .shape = spec.shape,
               .values = RowMajor(spec, part.parameters.data() + spec.master_offset_bytes)}));
  }
  for (const StatisticSpec& spec : layout.statistics) {
    const std::byte* from = statistics.data() + spec.offset_bytes;
    NamedValues values{.kind = NamedValues::Kind::kStatistic, .name = spec.name};
    if (spec.kind == StatisticSpec::Kind::kCount) {
      values.count = CountAt(from);
    } else {
      const float* floats = reinterpret_cast<const float*>(from);
      values.shape = {spec.numel};
      values.values.assign(floats, floats + spec.numel);
    }
    RZ_RETURN_IF_ERROR(visit(values));
  }
  return absl::OkStatus();
}

absl::Status ShowGradients(const StageLayout& layout, const std::byte* average,
                           const Visitor& visit) {
  for (const ParameterSpec& spec : layout.parameters) {
    if (!spec.trainable || !HasContribution(layout, average, spec.sum_index)) continue;
    std::vector<float> values;
    ForSumValues(layout, spec, average, 0, spec.numel,
                 [&values](const float* from, int64_t, int64_t count) {
                   values.insert(values.end(), from, from + count);
                 });
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    RZ_RETURN_IF_ERROR(visit({.kind = NamedValues::Kind::kGradient,
                              .name = spec.name,
                              .shape = spec.shape,
                              .values = RowMajor(spec, bytes)}));
  }
  return absl::OkStatus();
}

absl::Status ShowStates(const StageLayout& layout, const StateLayout& states,
                        const std::byte* state, const Visitor& visit) {
  for (const StateSpec& spec : states.specs) {
    const ParameterSpec& parameter = layout.parameters[spec.parameter];
    const std::byte* from = state + spec.offset_bytes;
    NamedValues values{
        .kind = NamedValues::Kind::kState, .name = parameter.name, .state = spec.name};
    if (spec.kind == StateSpec::Kind::kStep) {
      values.count = CountAt(from);
    } else {
      values.shape = parameter.shape;
      values.values = RowMajor(parameter, from);
    }
    RZ_RETURN_IF_ERROR(visit(values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CaughtStatus() {
  try {
    throw;
  } catch (const RingError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    // c10's allocator for the CPU has no exception class of its own for a lack of memory.
    if (absl::StrContains(what, "can't allocate memory")) return OutOfMemory(what);
    return absl::UnknownError(what);
  } catch (const std::bad_alloc& error) {
    return OutOfMemory(error.what());
  } catch (const std::system_error& error) {
    return FromSystemError(error);
  } catch (const std::exception& error) {
    return absl::UnknownError(error.what());
  }
}

absl::StatusOr<std::unique_ptr<RingModel>> RingModel::Create(RingModelOptions options) {
  return Guard([&] { return RingModelImpl::Create(std::move(options)); });
}

RingModelImpl::RingModelImpl(RingModelOptions options)
    : options_(std::move(options)),
      layouts_(options_.planned.layouts),
      optimizer_(options_.engine.optimizer),
      seed_(options_.engine.seed) {}

RingModelImpl::~RingModelImpl() {
  self_.reset();
  for (int j = 0; j < stage_count(); ++j) DropGradients(j);
  if (failure_.ok() && backward_begun_ && state_ == State::kForwarded) {
    failure_ = CheckBackwardDone();
  }
  // The other workers hear why, not only that this one left.
  if (engine_ != nullptr && !failure_.ok()) engine_->Abort(failure_);
  try {
    SetTraining(true);
  } catch (...) {  // by a layer's own train()
  }
}

absl::StatusOr<std::unique_ptr<RingModel>> RingModelImpl::Create(RingModelOptions options) {
  if (options.planned.layouts.size() != options.planned.plan.stages.size() ||
      options.planned.plan.stages.empty() ||
      options.planned.plan.stages.back().end_layer != static_cast<int>(options.layers.size())) {
    return absl::InvalidArgumentError("layers and plan are not of one model");
  }
  std::unique_ptr<RingModelImpl> impl(new RingModelImpl(std::move(options)));
  RZ_RETURN_IF_ERROR(impl->BuildStages());
  impl->FindWeights();
  RZ_RETURN_IF_ERROR(impl->StartEngine());
  return impl;
}

absl::Status RingModelImpl::BuildStages() {
  const int count = options_.planned.plan.stage_count();
  stages_.resize(count);
  for (int j = 0; j < count; ++j) {
    RingStage& stage = stages_[j];
    RZ_ASSIGN_OR_RETURN(stage.memory, ParameterMemory::Create(NameOf(j), layouts_[j]));
    stage.statistics = std::make_unique<StageStatistics>(layouts_[j]);
    stage.parameters.resize(layouts_[j].parameters.size());
    for (size_t i = 0; i < layouts_[j].parameters.size(); ++i) {
      places_[layouts_[j].parameters[i].name] = {j, static_cast<int>(i)};
    }
    for (int layer = plan_of(j).first_layer; layer < plan_of(j).end_layer; ++layer) {
      RZ_RETURN_IF_ERROR(BuildLayerOf(j, layer));
    }
    for (size_t i = 0; i < stage.parameters.size(); ++i) {
      if (!stage.parameters[i].defined()) {
        return InvalidArgument("\"", layouts_[j].parameters[i].name,
                               "\" is in the plan, but its layer has no such "
                               "parameter: was it built differently?");
      }
    }
  }
  return absl::OkStatus();
}

// Builds, takes the parameters' memory away, keeps the modules: one layer's values at a time.
absl::Status RingModelImpl::BuildLayerOf(int j, int layer) {
  const LayerFactory& factory = options_.layers[layer];
  RZ_ASSIGN_OR_RETURN(std::shared_ptr<Layer> built, BuildLayer(factory, seed_));
  RZ_RETURN_IF_ERROR(CheckLayer(factory.name, *built));
  std::vector<at::Tensor> as_built;  // where the cast makes other memory
  if (compute_type() != at::kFloat) {
    for (const NamedTensor& p : ParametersOf(*built)) as_built.push_back(p.tensor.detach());
    if (factory.ready) KeepStatistics(factory.name, *built);
    CastLayer(*built, compute_type());
  }
  for (const TiedParameter& tie : factory.tied) {  // DescribeModel has found its target
    const Place place = places_.at(tie.target);
    places_[absl::StrCat(factory.name, ".", tie.parameter)] = place;
  }
  const std::vector<NamedTensor> parameters = ParametersOf(*built);
  for (size_t i = 0; i < parameters.size(); ++i) {
    RZ_RETURN_IF_ERROR(BindParameter(j, factory, parameters[i],
                                     as_built.empty() ? at::Tensor() : std::move(as_built[i])));
  }
  RZ_RETURN_IF_ERROR(stages_[j].statistics->Add(factory.name, *built));
  if (const auto* marked = dynamic_cast<const MarkedLayer*>(built.get());
      marked != nullptr && layer == 0) {
    modes_.push_back({marked->whole(), marked->whole()->is_training()});
  }
  modes_.push_back({built, built->is_training()});
  for (const auto& module : built->inner()->modules(/*include_self=*/true)) {
    modes_.push_back({module, module->is_training()});
  }
  stages_[j].draws.push_back(built->draws());
  stages_[j].layers.push_back(std::move(built));
  return absl::OkStatus();
}

// The running statistics of a ready module, before a cast rounds them.
void RingModelImpl::KeepStatistics(const std::string& layer, Layer& built) {
  for (const BatchNormPart& part : built.batch_norms()) {
    for (const auto& [name, tensor] : StatisticsOf(layer, part)) kept_[name] = tensor.detach();
  }
}

// `as_built`: what the layer held before it was cast, if it was.
absl::Status RingModelImpl::BindParameter(int j, const LayerFactory& factory,
                                          const NamedTensor& parameter, at::Tensor as_built) {
  const std::string name = absl::StrCat(factory.name, ".", parameter.name);
  const at::Tensor& tensor = parameter.tensor;
  const auto found = places_.find(name);
  if (found == places_.end()) {
    return InvalidArgument("\"", name, "\" is not in the plan: was its layer built differently?");
  }
  const Place place = found->second;
  const ParameterSpec& spec = layouts_[place.stage].parameters[place.parameter];
  if (tensor.sizes() != at::IntArrayRef(spec.shape) ||
      tensor.strides() != at::IntArrayRef(spec.strides) ||
      tensor.requires_grad() != spec.trainable) {
    return InvalidArgument(
        "\"", name,
        "\" has another shape, stride or requires_grad than the plan: a layer must be "
        "built alike every time");
  }
  RingStage& owner = stages_[place.stage];
  at::Tensor had = owner.memory->Bind(place.parameter, tensor);
  at::Tensor& first = owner.parameters[place.parameter];
  if (!first.defined()) {
    first = tensor;
    if (factory.ready && options_.planned.plan.has_masters(options_.engine.self, StageId(j))) {
      kept_[name] = as_built.defined() ? std::move(as_built) : std::move(had);
    }
    if (spec.trainable) HookGradient(place.stage, place.parameter, tensor);
  } else if (spec.trainable) {
    // One gradient for both: the tied tensor's uses flow into the first one's accumulator.
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(first));
    torch::autograd::impl::set_grad_accumulator(tensor, accumulators_.back());
  }
  return absl::OkStatus();
}

InitializationRequest RingModelImpl::InitialValuesOf(StageId stage) const {
  const StagePlan& plan = plan_of(stage.value);
  const std::span<const LayerFactory> layers(options_.layers);
  return {.layers = layers.subspan(plan.first_layer, plan.end_layer - plan.first_layer),
          .layout = layouts_[stage.value],
          .seed = seed_,
          .preset = options_.preset,
          .kept = kept_};
}

absl::StatusOr<SharedBuffer> RingModelImpl::OrInitial(StageId stage,
                                                      SharedBuffer statistics) const {
  const auto bytes = static_cast<size_t>(layouts_[stage.value].statistics_bytes);
  if (statistics || bytes == 0) return statistics;
  Buffer initial = MakeHeapBuffer(bytes);
  RZ_RETURN_IF_ERROR(InitializeStage(InitialValuesOf(stage), nullptr, initial.data()));
  return std::move(initial).Seal();
}

absl::Status RingModelImpl::StartEngine() {
  EngineOptions engine = std::move(options_.engine);
  engine.plan = options_.planned.plan;
  engine.proof = options_.planned.proof;
  engine.layouts = layouts_;
  engine.loss_scale = options_.planned.precision.loss_scale;
  if (!engine.parameter_memory) {
    engine.initialize = [this](StageId stage, std::byte* parameters) {
      return InitializeStage(InitialValuesOf(stage), parameters, nullptr);
    };
  }
  engine.initialize_statistics = [this](StageId stage, std::byte* statistics) {
    return InitializeStage(InitialValuesOf(stage), nullptr, statistics);
  };
  RZ_ASSIGN_OR_RETURN(engine_, Engine::Create(std::move(engine)));
  kept_.clear();
  return absl::OkStatus();
}

absl::Status RingModelImpl::Show(const CollectedPart& part, const Visitor& visit) const {
  const StageLayout& layout = layouts_[part.stage.value];
  switch (part.kind) {
    case CollectedPart::Kind::kParameters: {
      RZ_ASSIGN_OR_RETURN(const SharedBuffer statistics, OrInitial(part.stage, part.statistics));
      return ShowParameters(layout, part, statistics, visit);
    }
    case CollectedPart::Kind::kGradient: return ShowGradients(layout, part.values, visit);
    case CollectedPart::Kind::kState:
      return ShowStates(layout, StateLayout::Make(optimizer_, layout), part.values, visit);
  }
  return absl::OkStatus();
}

absl::Status RingModelImpl::ShowCollection(const Visitor& visit) {
  RZ_ASSIGN_OR_RETURN(const LapTask collection, engine_->NextLap());
  LapTask lap = collection;
  do {
    RZ_ASSIGN_OR_RETURN(CollectedPart part, engine_->Collect());
    if (visit) RZ_RETURN_IF_ERROR(Show(part, visit));
    part = {};  // its memory is on loan until EndCollect
    RZ_RETURN_IF_ERROR(engine_->EndCollect());
    RZ_ASSIGN_OR_RETURN(lap, engine_->NextLap());
  } while (lap.kind == LapTask::Kind::kCollect && lap.iteration == collection.iteration);
  return absl::OkStatus();
}

}  // namespace ringzero
