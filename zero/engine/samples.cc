// Weights of gradients, and micro-batches without samples.
#include "zero/engine/samples.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "sharding/samples.h"
#include "zero/update/kernels.h"

namespace ringzero {

int NumberInIteration(const EngineOptions& options, const Op& op) {
  return op.lap.value * options.plan.workers + options.self.value;
}

bool IsMissing(const EngineOptions& options, const Op& op) {
  return op.copy == Copy::kNone && op.lap != kNoLap && IsCompute(op.kind) &&
         op.kind != OpKind::kEvaluate &&
         SamplesOf(options.plan, op.iteration, NumberInIteration(options, op)) == 0;
}

float WeightOfMicroBatch(const EngineOptions& options, const Op& op) {
  return static_cast<float>(WeightOf(options.plan, op.iteration, NumberInIteration(options, op)));
}

void AddWeighted(const StageLayout& layout, const GradientPart& part, const Weighing& how,
                 std::byte* sum) {
  GradientValues gradient{part.data, part.type};
  if (how.weight == 1) return AddContribution(layout, part.parameter, gradient, how.rounding, sum);
  std::vector<float> weighted(static_cast<size_t>(layout.parameters[part.parameter].numel));
  if (part.type == ValueType::kFp32) {
    std::memcpy(weighted.data(), part.data, weighted.size() * sizeof(float));
  } else {
    WidenPass(WireTypeOf(part.type), static_cast<const uint16_t*>(part.data), weighted.data(),
              static_cast<int64_t>(weighted.size()));
  }
  for (float& value : weighted) value *= how.weight;
  AddContribution(layout, part.parameter, {weighted.data()}, how.rounding, sum);
}

}  // namespace ringzero
