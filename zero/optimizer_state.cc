// Lays the optimizer's state out and copies it.
#include "zero/optimizer_state.h"

#include <algorithm>
#include <cstring>

#include "base/buffer.h"
#include "zero/update/optimizer_options.h"

namespace ringzero {
namespace {

std::vector<UpdateState> StatesOf(const OptimizerOptions& options, const ParameterSpec& parameter) {
  return MakeUpdate(OptionsFor(options, parameter), parameter)->states();
}

}  // namespace

StateLayout StateLayout::Make(const OptimizerOptions& options, const StageLayout& stage) {
  StateLayout layout;
  for (size_t i = 0; i < stage.parameters.size(); ++i) {
    const ParameterSpec& parameter = stage.parameters[i];
    if (!parameter.trainable) continue;
    const auto states = StatesOf(options, parameter);
    const auto add = [&](StateSpec::Kind kind, const std::string& name, int64_t bytes) {
      layout.specs.push_back({.kind = kind,
                              .name = name,
                              .parameter = static_cast<int>(i),
                              .offset_bytes = layout.bytes});
      layout.bytes += static_cast<int64_t>(AlignPayload(static_cast<size_t>(bytes)));
    };
    const int64_t values = parameter.numel * static_cast<int64_t>(sizeof(float));
    add(StateSpec::Kind::kStep, "step", sizeof(int64_t));
    if (!states.empty()) add(StateSpec::Kind::kFirst, states[0].name, values);
    if (states.size() > 1) add(StateSpec::Kind::kSecond, states[1].name, values);
  }
  return layout;
}

std::vector<int64_t> MomentBytes(const OptimizerOptions& options,
                                 const std::vector<StageLayout>& stages) {
  std::vector<int64_t> bytes;
  for (const StageLayout& stage : stages) {
    int64_t& all = bytes.emplace_back(0);
    for (const ParameterSpec& spec : stage.parameters) {
      if (!spec.trainable) continue;
      const size_t values = AlignPayload(static_cast<size_t>(spec.numel) * sizeof(float));
      all += static_cast<int64_t>(StatesOf(options, spec).size() * values);
    }
  }
  return bytes;
}

std::vector<int64_t> ScratchBytes(const OptimizerOptions& options,
                                  const std::vector<StageLayout>& stages) {
  std::vector<int64_t> bytes;
  for (const StageLayout& stage : stages) {
    int64_t most = 0;
    for (const ParameterSpec& spec : stage.parameters) {
      if (!spec.trainable) continue;
      const auto update = MakeUpdate(OptionsFor(options, spec), spec);
      most = std::max(most, update->ScratchBytes(spec.numel));
    }
    bytes.push_back(most);
  }
  return bytes;
}

void CopyState(const StateLayout& layout, const StageOptimizer& optimizer, std::byte* out) {
  for (const StateSpec& spec : layout.specs) {
    const StageOptimizer::ParameterState state = optimizer.state(spec.parameter);
    std::byte* to = out + spec.offset_bytes;
    if (spec.kind == StateSpec::Kind::kStep) {
      std::memcpy(to, &state.updates, sizeof(state.updates));
    } else {
      const std::span<const float> from =
          spec.kind == StateSpec::Kind::kFirst ? state.first : state.second;
      std::memcpy(to, from.data(), from.size_bytes());
    }
  }
}

void PutState(const StateLayout& layout, const std::byte* in, StageOptimizer& optimizer) {
  for (const StateSpec& spec : layout.specs) {
    const StageOptimizer::MutableState state = optimizer.mutable_state(spec.parameter);
    const std::byte* from = in + spec.offset_bytes;
    if (spec.kind == StateSpec::Kind::kStep) {
      std::memcpy(state.updates, from, sizeof(*state.updates));
    } else {
      const std::span<float> to = spec.kind == StateSpec::Kind::kFirst ? state.first : state.second;
      std::memcpy(to.data(), from, to.size_bytes());
    }
  }
}

}  // namespace ringzero
