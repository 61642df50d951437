// Micro-batches with fewer samples than the others, or none.
#include "zero/engine_samples.h"

#include <cstring>
#include <vector>

#include "base/status.h"
#include "sharding/samples.h"
#include "zero/engine_impl.h"
#include "zero/update/kernels.h"

namespace ringzero {

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

int Engine::Impl::NumberOf(const Op& op) const {
  return op.lap.value * plan_.workers + options_.self.value;
}

bool Engine::Impl::IsMissing(const Op& op) const {
  return op.copy == Copy::kNone && op.lap != kNoLap && IsCompute(op.kind) &&
         op.kind != OpKind::kEvaluate && SamplesOf(plan_, op.iteration, NumberOf(op)) == 0;
}

bool Engine::Impl::NextIsMissing() const {
  Lock lock(mutex_);
  return !compute_.empty() && IsMissing(state_.at(compute_.front()).linked.op);
}

float Engine::Impl::WeightOfMicroBatch(const Op& op) const {
  return static_cast<float>(WeightOf(plan_, op.iteration, NumberOf(op)));
}

absl::Status Engine::Impl::SkipMicroBatch(const std::vector<double>& metrics) {
  RZ_ASSIGN_OR_RETURN(const LapTask task, NextLap());
  if (task.kind != LapTask::Kind::kTrain || !task.missing()) {
    return FailedPrecondition("micro-batch ", task.micro_batch, " of iteration ",
                              task.iteration.value, " is not missing: it has to be computed");
  }
  for (int j = 0; j < plan_.stage_count(); ++j) {
    RZ_RETURN_IF_ERROR(Begin(OpKind::kForward, StageId(j)).status());
    RZ_RETURN_IF_ERROR(EndForward(StageId(j), Buffer()));
  }
  for (int j = plan_.stage_count() - 1; j >= 0 && plan_.stages[j].has_backward; --j) {
    RZ_RETURN_IF_ERROR(Begin(OpKind::kBackward, StageId(j)).status());
    RZ_RETURN_IF_ERROR(EndBackward(StageId(j), {}));
  }
  return EndMicroBatch(metrics);
}

}  // namespace ringzero
