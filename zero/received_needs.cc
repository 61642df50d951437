// Slides a window of credit over the receives of each channel.
#include "zero/received_needs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "p2p/transport.h"
#include "sharding/program.h"

namespace ringzero {
namespace {

using ChannelKey = std::pair<WorkerId, Channel>;
// Payload bytes of the messages of each channel, in order.
using Messages = std::map<ChannelKey, std::vector<size_t>>;
// By channel and size, the most that are alive at once.
using Alive = std::map<std::tuple<WorkerId, Channel, size_t>, size_t>;

// A slot is free when its message begins to leave for the next worker, so in a channel as many
// again as there are slots may be leaving.
constexpr size_t kLives = 2;

// What repeats is seen in few iterations; what is special: the first ones, the last ones, those
// around an evaluation or a collected version.
std::vector<IterationRange> Ranges(const Plan& plan) {
  constexpr int kBefore = 1;
  constexpr int kAfter = 3;
  std::vector<IterationRange> ranges;
  const auto around = [&](int iteration) {
    const int begin = std::clamp(iteration - kBefore, 0, plan.iterations);
    const int end = std::clamp(iteration + kAfter, begin + 1, plan.iterations + 1);
    ranges.push_back({Iteration(begin), Iteration(end)});
  };
  around(0);
  around(plan.iterations);
  if (plan.evaluation.every > 0) around(std::min(plan.evaluation.every, plan.iterations));
  if (plan.collection.every > 0) around(std::min(plan.collection.every, plan.iterations));
  for (size_t i = 0; i < std::min<size_t>(plan.collection.versions.size(), 2); ++i) {
    around(std::min(plan.collection.versions[i], plan.iterations));
  }
  return ranges;
}

// Slides a window over each channel's messages, as if they came again and again: those of an
// evaluation do, after many iterations.
void CountAlive(const Messages& messages, size_t window, Alive& most) {
  for (const auto& [channel, sizes] : messages) {
    std::map<size_t, size_t> alive;
    for (size_t i = 0; i < sizes.size() + window; ++i) {
      if (i >= window) --alive[sizes[(i - window) % sizes.size()]];
      const size_t size = sizes[i % sizes.size()];
      size_t& count = most[{channel.first, channel.second, size}];
      count = std::max(count, ++alive[size]);
    }
  }
}

}  // namespace

bool IsOwnedMessage(Channel channel) {
  return channel == Channel::kSum || channel == Channel::kRetire || channel == Channel::kBuffers ||
         channel == Channel::kMetrics || channel == Channel::kReports ||
         channel == Channel::kToken || channel == Channel::kStates;
}

size_t MessageBytes(const Plan& plan, const Op& message, int metrics_count) {
  switch (message.channel) {
    case Channel::kForwardCopy:
    case Channel::kBackwardCopy:
    case Channel::kInject:
    case Channel::kEvaluation:
    case Channel::kCollection:
      return static_cast<size_t>(plan.stage(message.stage).parameter_bytes);
    case Channel::kStates: {
      const StagePlan& stage = plan.stage(message.stage);
      return static_cast<size_t>(message.copy == Copy::kState ? stage.state_bytes
                                                              : stage.sum_bytes);
    }
    case Channel::kSum:
    case Channel::kRetire: return static_cast<size_t>(plan.stage(message.stage).sum_bytes);
    case Channel::kBuffers:
    case Channel::kSnapshots: return static_cast<size_t>(plan.stage(message.stage).buffer_bytes);
    case Channel::kMetrics:
    case Channel::kReports: return static_cast<size_t>(std::max(1, metrics_count)) * sizeof(double);
    case Channel::kToken:
    case Channel::kNone: break;
  }
  return kPayloadAlignment;
}

absl::StatusOr<ReceivedBytes> ReceivedNeeds(const Plan& plan, WorkerId self, int metrics_count) {
  ReceivedBytes bytes;
  if (plan.workers == 1 || !plan.exchange) return bytes;
  Alive most;
  for (const IterationRange& range : Ranges(plan)) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, self, range));
    Messages messages;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kReceive || op.peer == self) continue;
      messages[{op.peer, op.channel}].push_back(MessageBytes(plan, op, metrics_count));
    }
    CountAlive(messages, kLives * static_cast<size_t>(std::max(plan.window, 1)), most);
  }
  for (const auto& [key, count] : most) {
    const auto& [from, channel, size] = key;
    const size_t block = AlignPayload(size) + kPayloadAlignment;
    (IsOwnedMessage(channel) ? bytes.sums : bytes.parameters) += count * block;
  }
  return bytes;
}

}  // namespace ringzero
