// A switch with N ports: times, losses and cuts.
#include "tests/hosts/switch.h"

#include <algorithm>
#include <utility>

namespace ringzero {
namespace {

// How far a line may lag behind the clock: the process that plays the switch is woken late at
// times, and what it missed must not be missing from the rate.
constexpr int64_t kCatchUpNs = 1'000'000;

}  // namespace

Switch::Switch(const SwitchOptions& options)
    : options_(options),
      random_(options.seed),
      cut_(static_cast<size_t>(options.ports) * options.ports, 0),
      sent_until_ns_(options.ports, 0),
      received_until_ns_(options.ports, 0),
      under_way_(options.ports) {}

int64_t Switch::TimeOnLine(size_t bytes) const {
  if (options_.bits_per_second == 0) return 0;
  return static_cast<int64_t>(static_cast<double>(bytes) * 8e9 / options_.bits_per_second);
}

void Switch::Accept(int from, int to, Frame frame, int64_t now_ns) {
  const int64_t on_line_ns = TimeOnLine(frame.size());
  const int64_t begin_ns = std::max(sent_until_ns_[from], now_ns - kCatchUpNs);
  sent_until_ns_[from] = begin_ns + on_line_ns;
  const double chance = static_cast<double>(random_() >> 11) * 0x1.0p-53;
  const bool is_lost = chance < options_.loss;
  const bool is_overflow = received_until_ns_[to] - now_ns > TimeOnLine(options_.queue_bytes);
  if (IsCut(from, to) || is_lost || is_overflow) {
    ++(IsCut(from, to) ? counts_.cut : is_lost ? counts_.lost : counts_.overflow);
    Recycle(std::move(frame));
    return;
  }
  // The line to the receiver takes the frame bit by bit as it comes, unless it is busy.
  received_until_ns_[to] = std::max(begin_ns, received_until_ns_[to]) + on_line_ns;
  under_way_[to].push_back({.due_ns = std::max(received_until_ns_[to], now_ns) + options_.delay_ns,
                            .from = from,
                            .frame = std::move(frame)});
}

std::optional<int64_t> Switch::NextDue() const {
  std::optional<int64_t> next;
  for (const std::deque<UnderWay>& frames : under_way_) {
    if (frames.empty()) continue;
    next = std::min(next.value_or(frames.front().due_ns), frames.front().due_ns);
  }
  return next;
}

std::optional<Delivery> Switch::TakeDue(int64_t now_ns) {
  for (int to = 0; to < options_.ports; ++to) {
    std::deque<UnderWay>& frames = under_way_[to];
    while (!frames.empty() && frames.front().due_ns <= now_ns) {
      UnderWay taken = std::move(frames.front());
      frames.pop_front();
      if (IsCut(taken.from, to)) {
        ++counts_.cut;
        Recycle(std::move(taken.frame));
        continue;
      }
      ++counts_.delivered;
      counts_.delivered_bytes += taken.frame.size();
      return Delivery{.to = to, .frame = std::move(taken.frame)};
    }
  }
  return std::nullopt;
}

Frame Switch::Recycled() {
  if (spare_.empty()) return {};
  Frame frame = std::move(spare_.back());
  spare_.pop_back();
  return frame;
}

}  // namespace ringzero
