// Sizes a worker's transport from the plan.
#include "zero/transport_needs.h"

#include <algorithm>

#include "base/status.h"
#include "sharding/block_table.h"
#include "sharding/schedule.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

// Iterations whose statistics or metrics can be on their way at once: the one whose are being
// retired, the one whose are being folded, and one being started.
constexpr size_t kIterationsAlive = 3;

}  // namespace

size_t ArenaBytes(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

absl::StatusOr<TransportOptions> TransportNeeds(const Plan& plan, WorkerId self,
                                                int metrics_count) {
  TransportOptions options;
  const int window = std::max(plan.window, 1);
  options.slots.assign(kMaxMessageKinds, window);
  const std::vector<int> held = HeldSlots(plan, self);
  for (int channel = 0; channel < kChannelCount; ++channel) {
    const uint8_t kind = MessageKeyOf({.channel = static_cast<Channel>(channel)}).kind;
    if (held[channel] > 0) options.slots[kind] = held[channel];
  }
  for (const OwnBlock& own : OwnBlocks(plan, self, {})) {
    if (own.access == Access::kLentToRead) options.parameter_bytes += ArenaBytes(own.bytes);
    const bool written = own.access == Access::kHandedOn || own.access == Access::kLentToWrite;
    if (written) options.sum_bytes += ArenaBytes(own.bytes);
  }
  for (const StagePlan& stage : plan.stages) {
    // Squares on their way to worker 0, and norms from there: at most one for each who updates.
    if (plan.has_norm()) {
      const auto squares = static_cast<int64_t>(stage.trained_parameters * sizeof(double));
      options.sum_bytes +=
          kIterationsAlive * ArenaBytes(self.value == 0 ? sizeof(double) : squares);
    }
    // Every worker takes statistics into memory of its own, and the last one keeps some for
    // evaluations.
    options.sum_bytes += 2 * kIterationsAlive * ArenaBytes(stage.buffer_bytes);
  }
  const size_t metrics =
      ArenaBytes(static_cast<int64_t>(sizeof(double)) * std::max(metrics_count, 1));
  const size_t tokens = ArenaBytes(static_cast<int64_t>(kPayloadAlignment));
  options.sum_bytes +=
      4 * kIterationsAlive * metrics + (2 * static_cast<size_t>(window) + 2) * tokens;
  if (plan.one_host) return options;  // nothing is received into memory of one's own
  RZ_ASSIGN_OR_RETURN(const ReceivedBytes received, ReceivedNeeds(plan, self, metrics_count));
  options.received_parameter_bytes = received.parameters;
  options.received_sum_bytes = received.sums;
  return options;
}

}  // namespace ringzero
