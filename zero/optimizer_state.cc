// Lays the optimizer's state out and copies it.
#include "zero/optimizer_state.h"

#include <cstring>

#include "base/buffer.h"

namespace ringzero {

StateLayout StateLayout::Make(const OptimizerOptions& options, const StageLayout& stage) {
  const bool adamw = options.type == OptimizerOptions::Type::kAdamW;
  const bool has_first = adamw || options.sgd.momentum != 0;
  StateLayout layout;
  for (size_t i = 0; i < stage.parameters.size(); ++i) {
    const ParameterSpec& parameter = stage.parameters[i];
    if (!parameter.trainable) continue;
    const auto add = [&](StateSpec::Kind kind, const char* name, int64_t bytes) {
      layout.specs.push_back({.kind = kind,
                              .name = name,
                              .parameter = static_cast<int>(i),
                              .offset_bytes = layout.bytes});
      layout.bytes += static_cast<int64_t>(AlignPayload(static_cast<size_t>(bytes)));
    };
    const int64_t values = parameter.numel * static_cast<int64_t>(sizeof(float));
    add(StateSpec::Kind::kStep, "step", sizeof(int64_t));
    if (has_first) add(StateSpec::Kind::kFirst, adamw ? "exp_avg" : "momentum_buffer", values);
    if (adamw) add(StateSpec::Kind::kSecond, "exp_avg_sq", values);
  }
  return layout;
}

std::vector<int64_t> MomentBytes(const OptimizerOptions& options,
                                 const std::vector<StageLayout>& stages) {
  const bool adamw = options.type == OptimizerOptions::Type::kAdamW;
  const int64_t moments = adamw ? 2 : options.sgd.momentum != 0 ? 1 : 0;
  std::vector<int64_t> bytes;
  for (const StageLayout& stage : stages) {
    int64_t values = 0;
    for (const ParameterSpec& spec : stage.parameters) values += spec.trainable ? spec.numel : 0;
    bytes.push_back(moments * values * static_cast<int64_t>(sizeof(float)));
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

}  // namespace ringzero
