// A switch with N ports: what becomes of a frame on links with a delay, a rate and losses.
//
//   Switch wire({.ports = 4, .delay_ns = 2'000'000, .bits_per_second = 1e9, .loss = 0.001});
//   if (wire.FreeAt(0) <= now) wire.Accept(0, 3, std::move(frame), now);
//   while (std::optional<Delivery> due = wire.TakeDue(now)) Write(due->to, due->frame);
//
// Every port has one full-duplex line of the given rate; the delay is that of the whole way, one
// way. Time comes from the caller, in nanoseconds of any steady clock. Not thread-safe.
#ifndef RINGZERO_TESTS_HOSTS_SWITCH_H_
#define RINGZERO_TESTS_HOSTS_SWITCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace ringzero {

using Frame = std::vector<unsigned char>;

struct SwitchOptions {
  int ports = 2;
  int64_t delay_ns = 0;
  double bits_per_second = 0;  // 0: no limit
  double loss = 0;             // probability, of each frame by itself
  uint64_t seed = 1;
  // What may wait before the line to one port when several ports send to it; more is dropped, as
  // switches do. A sender's own line drops nothing: it is asked for a frame when it is free.
  size_t queue_bytes = size_t{8} << 20;
};

struct SwitchCounts {
  uint64_t delivered = 0;
  uint64_t delivered_bytes = 0;
  uint64_t lost = 0;      // by chance
  uint64_t overflow = 0;  // the queue was full
  uint64_t cut = 0;       // the cable was cut
};

struct Delivery {
  int to;
  Frame frame;
};

class Switch {
 public:
  explicit Switch(const SwitchOptions& options)
      : options_(options),
        random_(options.seed),
        cut_(static_cast<size_t>(options.ports) * options.ports, 0),
        sent_until_ns_(options.ports, 0),
        received_until_ns_(options.ports, 0),
        under_way_(options.ports) {}

  // When the line of `port` can take its next frame. A late caller may catch up for a millisecond.
  int64_t FreeAt(int port) const { return sent_until_ns_[port]; }
  // All of its bytes count against the rate.
  void Accept(int from, int to, Frame frame, int64_t now_ns) {
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
    under_way_[to].push_back(
        {.due_ns = std::max(received_until_ns_[to], now_ns) + options_.delay_ns,
         .from = from,
         .frame = std::move(frame)});
  }

  // When the next delivery is due; nothing when nothing is under way.
  std::optional<int64_t> NextDue() const {
    std::optional<int64_t> next;
    for (const std::deque<UnderWay>& frames : under_way_) {
      if (frames.empty()) continue;
      next = std::min(next.value_or(frames.front().due_ns), frames.front().due_ns);
    }
    return next;
  }

  std::optional<Delivery> TakeDue(int64_t now_ns) {
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

  // Between `a` and `b`, both ways: frames that are under way are lost too.
  void SetCut(int a, int b, bool cut) {
    cut_[a * options_.ports + b] = cut_[b * options_.ports + a] = cut;
  }

  const SwitchCounts& counts() const { return counts_; }

  // A frame whose memory can be used again: empty, or of any old contents.
  Frame Recycled() {
    if (spare_.empty()) return {};
    Frame frame = std::move(spare_.back());
    spare_.pop_back();
    return frame;
  }
  void Recycle(Frame frame) { spare_.push_back(std::move(frame)); }

 private:
  struct UnderWay {
    int64_t due_ns;
    int from;
    Frame frame;
  };

  // How far a line may lag behind the clock: the process that plays the switch is woken late at
  // times, and what it missed must not be missing from the rate.
  static constexpr int64_t kCatchUpNs = 1'000'000;

  bool IsCut(int a, int b) const { return cut_[a * options_.ports + b]; }
  int64_t TimeOnLine(size_t bytes) const {
    if (options_.bits_per_second == 0) return 0;
    return static_cast<int64_t>(static_cast<double>(bytes) * 8e9 / options_.bits_per_second);
  }

  SwitchOptions options_;
  std::mt19937_64 random_;
  std::vector<char> cut_;                        // {ports, ports}
  std::vector<int64_t> sent_until_ns_;           // per sending port
  std::vector<int64_t> received_until_ns_;       // per receiving port
  std::vector<std::deque<UnderWay>> under_way_;  // per receiving port, by due time
  std::vector<Frame> spare_;
  SwitchCounts counts_;
};

}  // namespace ringzero

#endif  // RINGZERO_TESTS_HOSTS_SWITCH_H_
