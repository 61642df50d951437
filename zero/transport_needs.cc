// Sizes a worker's transport from the plan.
#include "zero/transport_needs.h"

#include <algorithm>

#include "base/status.h"
#include "sharding/collections.h"
#include "sharding/schedule.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

// Iterations whose statistics or metrics can be on their way at once: the one whose are being
// retired, the one whose are being folded, and one being started.
constexpr size_t kIterationsAlive = 3;

// Collections whose sums and states an owner keeps at once: it cannot make version v + 2 before
// whoever collects has been through v and contributed to it.
constexpr size_t kCollectionsAlive = 2;

}  // namespace

size_t ArenaBytes(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan,
                                                const std::vector<StageLayout>& layouts,
                                                WorkerId self, int metrics_count) {
  TransportOptions options;
  const int window = std::max(plan.window, 1);
  options.slots.assign(kMaxMessageKinds, window);
  const std::vector<int> held = HeldSlots(plan, self);
  for (int kind = 0; kind < kChannelCount; ++kind) {
    if (held[kind] > 0) options.slots[kind] = held[kind];
  }
  const bool collects = plan.collection.every > 0 || !plan.collection.versions.empty();
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StageLayout& layout = layouts[j];
    // Where everybody has all masters, none of them travels.
    if (plan.stages[j].owner == self && plan.zero_stage > 0) {
      const auto versions = static_cast<size_t>(VersionBuffers(plan, StageId(j)));
      options.parameter_bytes += versions * ArenaBytes(layout.parameter_bytes);
      const size_t masters = plan.has_two_masters() ? 2 : 1;
      if (layout.master_bytes > 0)
        options.parameter_bytes += masters * ArenaBytes(layout.master_bytes);
    }
    if (KeepsFor(plan, plan.collection.worker, StageId(j)) == self) {
      const size_t kept = ArenaBytes(layout.sum_bytes) + ArenaBytes(plan.stages[j].state_bytes);
      if (collects) options.sum_bytes += kCollectionsAlive * kept;
    }
    // Squares on their way to worker 0, and norms from there: at most one for each who updates.
    if (plan.has_norm()) {
      const auto squares = static_cast<int64_t>(plan.stages[j].trained_parameters * sizeof(double));
      options.sum_bytes +=
          kIterationsAlive * ArenaBytes(self.value == 0 ? sizeof(double) : squares);
    }
    // Worker 0 begins one sum of a stage at a time. Every worker takes statistics into memory of its
    // own, and the last one keeps some for evaluations.
    if (self.value == 0) options.sum_bytes += ArenaBytes(layout.sum_bytes);
    options.sum_bytes += 2 * kIterationsAlive * ArenaBytes(layout.statistics_bytes);
  }
  const size_t metrics =
      ArenaBytes(static_cast<int64_t>(sizeof(double)) * std::max(metrics_count, 1));
  const size_t tokens = ArenaBytes(static_cast<int64_t>(kPayloadAlignment));
  options.sum_bytes +=
      4 * kIterationsAlive * metrics + (2 * static_cast<size_t>(window) + 2) * tokens;
  RZ_ASSIGN_OR_RETURN(const ReceivedBytes received, ReceivedNeeds(plan, self, metrics_count));
  options.received_parameter_bytes = received.parameters;
  options.received_sum_bytes = received.sums;
  return options;
}

}  // namespace ringzero
