// Sizes a worker's transport from the plan.
#include "zero/transport_needs.h"

#include <algorithm>
#include <map>

namespace ringzero {
namespace {

// One buffer as an arena counts it (TransportOptions).
size_t Block(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

// Iterations whose statistics or metrics can be on their way at once: the one whose are being
// retired, the one whose are being folded, and one being started.
constexpr size_t kIterationsAlive = 3;

// Collections whose sums and states an owner keeps at once: it cannot make version v + 2 before
// whoever collects has been through v and contributed to it.
constexpr size_t kCollectionsAlive = 2;

// Messages of one size that may have arrived at a worker and not have left it.
struct Arrivals {
  const Plan& plan;
  size_t window;

  // Channels from the one worker before this one. A slot is free when its message begins to leave,
  // so as many again may be leaving.
  size_t FromNeighbour(size_t channels) const { return 2 * window * channels; }
  // Channels from whoever owns or has them: each stage has at most three labels alive at once.
  size_t FromAnybody(size_t channels, size_t stages) const {
    const size_t peers = static_cast<size_t>(std::max(plan.workers - 1, 0));
    return 2 * std::min(window * peers, 3 * stages) * channels;
  }
};

// What a transport that receives into memory of its own needs: address space, since a block that is
// never used costs nothing.
void AddReceived(const Plan& plan, const std::vector<StageLayout>& layouts, size_t metrics,
                 TransportOptions& options) {
  std::map<int64_t, size_t> parameters, sums, statistics, states;  // bytes -> stages of that size
  for (int j = 0; j < plan.stage_count(); ++j) {
    ++parameters[layouts[j].parameter_bytes];
    ++sums[layouts[j].sum_bytes];
    ++statistics[layouts[j].statistics_bytes];
    ++states[plan.stages[j].state_bytes];
  }
  const Arrivals arrivals = {plan, static_cast<size_t>(options.slots[0])};
  for (const auto& [bytes, stages] : parameters) {
    // Forward, backward, evaluation; injected, injected for evaluation, collected.
    options.received_parameter_bytes +=
        Block(bytes) * (arrivals.FromNeighbour(3) + arrivals.FromAnybody(3, stages));
  }
  for (const auto& [bytes, stages] : sums) {  // sum; retire, collected
    options.received_sum_bytes +=
        Block(bytes) * (arrivals.FromNeighbour(1) + arrivals.FromAnybody(2, stages));
  }
  for (const auto& [bytes, stages] : statistics) {  // buffers, snapshots
    options.received_sum_bytes +=
        Block(bytes) * (arrivals.FromNeighbour(2) + arrivals.FromAnybody(2, stages));
  }
  for (const auto& [bytes, stages] : states) {
    options.received_sum_bytes += Block(bytes) * arrivals.FromAnybody(1, stages);
  }
  const size_t peers = static_cast<size_t>(std::max(plan.workers - 1, 1));
  const size_t tokens = Block(static_cast<int64_t>(kPayloadAlignment));
  options.received_sum_bytes += 2 * arrivals.window * peers * (2 * metrics + 2 * tokens);
}

}  // namespace

TransportOptions TransportNeeds(const Plan& plan, const std::vector<StageLayout>& layouts,
                                WorkerId self, int metrics_count) {
  TransportOptions options;
  options.slots = {std::max(plan.window, 1)};
  const size_t versions = plan.rule == Rule::kDp ? 1 : 2;
  const bool collects = plan.collection.every > 0 || !plan.collection.versions.empty();
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StageLayout& layout = layouts[j];
    if (plan.stages[j].owner == self) {
      options.parameter_bytes += versions * Block(layout.parameter_bytes);
      const size_t kept = Block(layout.sum_bytes) + Block(plan.stages[j].state_bytes);
      if (collects) options.sum_bytes += kCollectionsAlive * kept;
    }
    // Worker 0 starts the sums, one of a stage at a time. Every worker takes statistics into memory
    // of its own, and the last one keeps some for evaluations.
    if (self.value == 0) options.sum_bytes += Block(layout.sum_bytes);
    options.sum_bytes += 2 * kIterationsAlive * Block(layout.statistics_bytes);
  }
  const size_t metrics = Block(static_cast<int64_t>(sizeof(double)) * std::max(metrics_count, 1));
  const size_t tokens = Block(static_cast<int64_t>(kPayloadAlignment));
  options.sum_bytes += 4 * kIterationsAlive * metrics + (2 * options.slots[0] + 2) * tokens;
  AddReceived(plan, layouts, metrics, options);
  return options;
}

}  // namespace ringzero
