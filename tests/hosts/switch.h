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
  explicit Switch(const SwitchOptions& options);

  // When the line of `port` can take its next frame. A late caller may catch up for a millisecond.
  int64_t FreeAt(int port) const { return sent_until_ns_[port]; }
  // All of its bytes count against the rate.
  void Accept(int from, int to, Frame frame, int64_t now_ns);

  // When the next delivery is due; nothing when nothing is under way.
  std::optional<int64_t> NextDue() const;
  std::optional<Delivery> TakeDue(int64_t now_ns);

  // Between `a` and `b`, both ways: frames that are under way are lost too.
  void SetCut(int a, int b, bool cut) {
    cut_[a * options_.ports + b] = cut_[b * options_.ports + a] = cut;
  }

  const SwitchCounts& counts() const { return counts_; }

  // A frame whose memory can be used again: empty, or of any old contents.
  Frame Recycled();
  void Recycle(Frame frame) { spare_.push_back(std::move(frame)); }

 private:
  struct UnderWay {
    int64_t due_ns;
    int from;
    Frame frame;
  };

  bool IsCut(int a, int b) const { return cut_[a * options_.ports + b]; }
  int64_t TimeOnLine(size_t bytes) const;

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
