// Counts the receives of each channel by size, as far as its slots allow.
#include "zero/received_needs.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "sharding/program.h"
#include "sharding/schedule.h"

namespace ringzero {
namespace {

using ChannelKey = std::pair<WorkerId, Channel>;
// How many messages of each payload there are on each channel.
using Messages = std::map<ChannelKey, std::map<size_t, size_t>>;
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

// Calls `receive` with each message from others in the range, in order, and forgets it: there are
// as many as there are laps.
absl::Status EachReceived(const Plan& plan, WorkerId self, const IterationRange& range,
                          const std::function<void(const Op&)>& receive) {
  RZ_ASSIGN_OR_RETURN(ProgramWriter writer, ProgramWriter::Create(plan, self, range.begin));
  while (writer.part().has_value() && writer.part()->iteration < range.end) {
    for (const Instruction& op : writer.Next()) {
      if (op.kind == OpKind::kReceive && op.peer != self) receive(op);
    }
  }
  return absl::OkStatus();
}

// Any of them may be alive, not only some that follow each other: one may be held for long while
// others pass it.
void CountAlive(const Messages& messages, size_t window, const std::vector<int>& held,
                Alive& most) {
  for (const auto& [channel, counts] : messages) {
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
class MostTogether {
 public:
  explicit MostTogether(size_t window) : window_(window) {}

  void Add(const Received& message) {
    size_t& count = ++alive_[message.bytes];
    last_.push_back(message);
    while (last_.size() > window_ ||
           message.iteration - last_.front().iteration >= static_cast<int>(kLives)) {
      --alive_[last_.front().bytes];
      last_.pop_front();
    }
    size_t& so_far = most_[message.bytes];
    so_far = std::max(so_far, count);
  }
  const std::map<size_t, size_t>& most() const { return most_; }

 private:
  size_t window_;
  std::deque<Received> last_;
  std::map<size_t, size_t> most_, alive_;
};

}  // namespace

// Kinds are four bits. No message is of Channel::kNone, so the last channel has its number.
static_assert(kChannelCount == kMaxMessageKinds + 1);

MessageKey MessageKeyOf(const Op& message) {
  const int kind = static_cast<int>(message.channel) % kMaxMessageKinds;
  return {static_cast<uint8_t>(kind), MessageTag(message)};
}

Op SendOf(MessageKey key) {
  return MessageOp(key.kind == 0 ? Channel::kReturn : static_cast<Channel>(key.kind), key.tag);
}

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
    case Channel::kReturn:
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
    Messages messages;
    RZ_RETURN_IF_ERROR(EachReceived(plan, self, range, [&](const Op& op) {
      ++messages[{op.peer, op.channel}][MessageBytes(plan, op, metrics_count)];
    }));
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
    std::map<ChannelKey, MostTogether> messages;
    RZ_RETURN_IF_ERROR(EachReceived(plan, self, range, [&](const Op& op) {
      const auto slots = static_cast<size_t>(held[static_cast<size_t>(op.channel)]);
      messages.try_emplace({op.peer, op.channel}, std::max(slots, window))
          .first->second.Add({op.iteration.value, MessageBytes(plan, op, metrics_count)});
    }));
    for (const auto& [channel, together] : messages) {
      for (const auto& [size, count] : together.most()) {
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
