// Windows by the numbers of micro-batches.
#include "sharding/sum_windows.h"

namespace ringzero {
namespace {

int64_t MicroBatchesPerUpdate(const Plan& plan) { return int64_t{plan.workers} * plan.laps; }

int64_t NumberInRun(const Plan& plan, const MicroBatch& m) {
  return (int64_t{m.iteration.value} * plan.laps + m.lap.value) * plan.workers + m.worker.value;
}

// c_j: of an update u the last micro-batch is N·K·u + c_j.
int64_t LastOfFirstUpdate(const Plan& plan, StageId j) {
  return plan.balanced() ? j.value : MicroBatchesPerUpdate(plan) - 1;
}

}  // namespace

Iteration UpdateInEndlessRun(const Plan& plan, const MicroBatch& m, StageId j) {
  const int64_t each = MicroBatchesPerUpdate(plan);
  // Rounded up, of at least -c_j > -N·K.
  const int64_t after_first = NumberInRun(plan, m) - LastOfFirstUpdate(plan, j);
  return Iteration(static_cast<int>((after_first + each - 1) / each));
}

std::optional<Iteration> UpdateOf(const Plan& plan, const MicroBatch& m, StageId j) {
  const Iteration update = UpdateInEndlessRun(plan, m, j);
  if (update.value >= plan.iterations) return std::nullopt;
  return update;
}

bool BeginsSum(const Plan& plan, const MicroBatch& m, StageId j) {
  const int64_t number = NumberInRun(plan, m);
  const int64_t before = number - LastOfFirstUpdate(plan, j) - 1;
  return number == 0 || before % MicroBatchesPerUpdate(plan) == 0;
}

bool CompletesSum(const Plan& plan, const MicroBatch& m, StageId j) {
  const int64_t after_first = NumberInRun(plan, m) - LastOfFirstUpdate(plan, j);
  return after_first % MicroBatchesPerUpdate(plan) == 0;
}

bool IsLastPart(const Plan& plan, const MicroBatch& m) {
  return plan.balanced() || m.lap.value == plan.laps - 1;
}

WorkerId SumsEndAt(const Plan& plan, StageId j) {
  return WorkerId(plan.balanced() ? j.value : plan.workers - 1);
}

bool MayBeginSum(const Plan& plan, WorkerId w, StageId j) {
  return w.value == 0 || (plan.balanced() && w.value == j.value + 1);
}

}  // namespace ringzero
