// Shows a visitor what a collection brings: one named tensor after the other.
#include <cstring>

#include "base/status.h"
#include "integrations/torch/ring_model_impl.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer_state.h"

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
                            const Visitor& visit) {
  for (const ParameterSpec& spec : layout.parameters) {
    RZ_RETURN_IF_ERROR(
        visit({.kind = NamedValues::Kind::kParameter,
               .name = spec.name,
               .shape = spec.shape,
               .values = RowMajor(spec, part.parameters.data() + spec.master_offset_bytes)}));
  }
  for (const StatisticSpec& spec : layout.statistics) {
    if (!part.statistics) return absl::InternalError("a collection came without statistics");
    const std::byte* from = part.statistics.data() + spec.offset_bytes;
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

absl::Status RingModel::Impl::Show(const CollectedPart& part, const Visitor& visit) const {
  const StageLayout& layout = layouts_[part.stage.value];
  switch (part.kind) {
    case CollectedPart::Kind::kParameters: return ShowParameters(layout, part, visit);
    case CollectedPart::Kind::kGradient: return ShowGradients(layout, part.values, visit);
    case CollectedPart::Kind::kState:
      return ShowStates(layout, StateLayout::Make(optimizer_, layout), part.values, visit);
  }
  return absl::OkStatus();
}

absl::Status RingModel::Impl::Collect(const Visitor& visit) {
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
