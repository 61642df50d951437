// Counts the receives of each channel by size, as far as its slots allow.
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
#include "sharding/schedule.h"

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

// A range has all that is under way at once: nobody is more than two iterations ahead. What comes
// rarely, an evaluation's say, may meet the ends of the last two.
constexpr size_t kRounds = 3;

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

// Any of them may be alive, not only some that follow each other: one may be held for long while
// others pass it.
void CountAlive(const Messages& messages, size_t window, const std::vector<int>& held,
                Alive& most) {
  for (const auto& [channel, sizes] : messages) {
    std::map<size_t, size_t> counts;
    for (const size_t size : sizes) ++counts[size];
    for (const auto& [size, count] : counts) {
      size_t& alive = most[{channel.first, channel.second, size}];
      // Held copies are passed on long before their slots are free: few are still leaving then.
      const size_t slots = static_cast<size_t>(held[static_cast<size_t>(channel.second)]);
      const size_t lives = slots > 0 ? slots + std::min(window, count) : kLives * window;
      alive = std::max(alive, std::min(lives, kRounds * count));
    }
  }
}

struct Received {
  int iteration;
  size_t bytes;
};

// Of each size the most in any run of `window` messages of at most two iterations.
std::map<size_t, size_t> MostTogether(const std::vector<Received>& messages, size_t window) {
  std::map<size_t, size_t> most, alive;
  size_t first = 0;
  for (size_t last = 0; last < messages.size(); ++last) {
    size_t& count = ++alive[messages[last].bytes];
    while (last - first >= window ||
           messages[last].iteration - messages[first].iteration >= static_cast<int>(kLives)) {
      --alive[messages[first++].bytes];
    }
    size_t& so_far = most[messages[last].bytes];
    so_far = std::max(so_far, count);
  }
  return most;
}

}  // namespace

bool IsOwnedMessage(Channel channel) {
  return channel == Channel::kSum || channel == Channel::kRetire || channel == Channel::kBuffers ||
         channel == Channel::kMetrics || channel == Channel::kReports ||
         channel == Channel::kToken || channel == Channel::kStates || channel == Channel::kNorms;
}

size_t MessageBytes(const Plan& plan, const Op& message, int metrics_count) {
  switch (message.channel) {
    case Channel::kForwardCopy:
    case Channel::kBackwardCopy:
    case Channel::kInject:
    case Channel::kEvaluation:
      return static_cast<size_t>(plan.stage(message.stage).parameter_bytes);
    case Channel::kCollection:
      return static_cast<size_t>(plan.stage(message.stage).collected_bytes());
    case Channel::kStates: {
      const StagePlan& stage = plan.stage(message.stage);
      return static_cast<size_t>(message.copy == Copy::kState ? stage.state_bytes
                                                              : stage.sum_bytes);
    }
    case Channel::kSum:
    case Channel::kRetire:
    case Channel::kFinished: return static_cast<size_t>(plan.stage(message.stage).sum_bytes);
    case Channel::kBuffers:
    case Channel::kSnapshots: return static_cast<size_t>(plan.stage(message.stage).buffer_bytes);
    case Channel::kMetrics:
    case Channel::kReports: return static_cast<size_t>(std::max(1, metrics_count)) * sizeof(double);
    case Channel::kNorms: {
      const int values =
          message.stage == kNoStage ? 1 : plan.stage(message.stage).trained_parameters;
      return static_cast<size_t>(values) * sizeof(double);
    }
    case Channel::kToken:
    case Channel::kNone: break;
  }
  return kPayloadAlignment;
}

absl::StatusOr<ReceivedBytes> ReceivedNeeds(const Plan& plan, WorkerId self, int metrics_count) {
  ReceivedBytes bytes;
  if (plan.workers == 1 || !plan.exchange) return bytes;
  Alive most;
  const std::vector<int> held = HeldSlots(plan, self);
  for (const IterationRange& range : Ranges(plan)) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, self, range));
    Messages messages;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kReceive || op.peer == self) continue;
      messages[{op.peer, op.channel}].push_back(MessageBytes(plan, op, metrics_count));
    }
    CountAlive(messages, static_cast<size_t>(std::max(plan.window, 1)), held, most);
  }
  for (const auto& [key, count] : most) {
    const auto& [from, channel, size] = key;
    const size_t block = AlignPayload(size) + kPayloadAlignment;
    (IsOwnedMessage(channel) ? bytes.sums : bytes.parameters) += count * block;
  }
  return bytes;
}

absl::StatusOr<ReceivedBytes> ReceivedUse(const Plan& plan, WorkerId self, int metrics_count) {
  ReceivedBytes bytes;
  if (plan.workers == 1 || !plan.exchange) return bytes;
  Alive most;
  // One is leaving while its slot is used again; more leave together only where a link is slow.
  const size_t window = static_cast<size_t>(std::max(plan.window, 1)) + 1;
  const std::vector<int> held = HeldSlots(plan, self);
  for (const IterationRange& range : Ranges(plan)) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, self, range));
    std::map<ChannelKey, std::vector<Received>> messages;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kReceive || op.peer == self) continue;
      messages[{op.peer, op.channel}].push_back(
          {op.iteration.value, MessageBytes(plan, op, metrics_count)});
    }
    for (const auto& [channel, received] : messages) {
      const auto slots = static_cast<size_t>(held[static_cast<size_t>(channel.second)]);
      for (const auto& [size, count] : MostTogether(received, std::max(slots, window))) {
        size_t& alive = most[{channel.first, channel.second, size}];
        alive = std::max(alive, count);
      }
    }
  }
  for (const auto& [key, count] : most) {
    const auto& [from, channel, size] = key;
    const size_t block = AlignPayload(size) + kPayloadAlignment;
    (IsOwnedMessage(channel) ? bytes.sums : bytes.parameters) += count * block;
  }
  return bytes;
}

}  // namespace ringzero
