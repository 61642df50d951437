// Heartbeat: a message thread's signs of life, and which of the others have fallen silent.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<PulseBoard> board, PulseBoard::Create(workers));
//   Heartbeat heartbeat(self, board, options.peer_timeout);
//   while (running) {
//     ... wait for news, at most until heartbeat.next(); handle them ...
//     for (const Silence& silence : heartbeat.Tick(Clock::now())) ...   // worker, for how long
//   }
//
// A board is one page that the processes of one host share: a sign of life is a store, looking for
// one a load. A worker's own timer wakes it, `timeout` / 5 after its last tick. Silence is counted
// in awake time (AwakeClock; docs/p2p.md, "When something breaks").
#ifndef RINGZERO_P2P_HEARTBEAT_H_
#define RINGZERO_P2P_HEARTBEAT_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/deadline.h"
#include "p2p/mapping.h"

namespace ringzero {

// When each worker was last alive. Thread-safe, across processes too: lock-free words only.
class PulseBoard {
 public:
  using Clock = std::chrono::steady_clock;  // one for all processes of a host

  // In a memory file of FileBytes (p2p/mapping.h), which may be closed afterwards. Without one:
  // shared with the processes that this one forks later. ResourceExhausted without memory.
  static absl::StatusOr<std::shared_ptr<PulseBoard>> Create(int workers,
                                                            const UniqueFd& file = UniqueFd());
  static size_t FileBytes(int workers) { return workers * sizeof(Pulse); }

  int workers() const { return workers_; }
  void Beat(WorkerId worker, Clock::time_point now);
  // Nothing: it has not begun.
  std::optional<Clock::time_point> LastBeat(WorkerId worker) const;

 private:
  struct alignas(64) Pulse {
    std::atomic<Clock::rep> last;  // 0, as memory is mapped: not begun; any bits are one
  };
  static_assert(std::atomic<Clock::rep>::is_always_lock_free);

  PulseBoard(int workers, Mapping memory) : workers_(workers), memory_(std::move(memory)) {}
  Pulse& At(WorkerId worker) const;

  const int workers_;
  const Mapping memory_;
};

struct Silence {
  WorkerId worker;
  std::chrono::milliseconds lasted;
};

// One message thread's. Not thread-safe.
class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  // The board is shared by all workers of it. Silence for `timeout` is death. Beats at once.
  Heartbeat(WorkerId self, std::shared_ptr<PulseBoard> board, std::chrono::milliseconds timeout);

  // Beats, and returns who has newly fallen silent. A worker that has not begun is not silent.
  std::vector<Silence> Tick(Clock::time_point now);
  // When the next Tick is due at the latest.
  Clock::time_point next() const { return next_; }

 private:
  struct Peer {
    std::optional<Clock::time_point> seen;  // its last beat
    Clock::time_point awake;                // the same in our awake time
    bool silent = false;                    // said once
  };

  const WorkerId self_;
  const std::shared_ptr<PulseBoard> board_;
  const Clock::duration timeout_;
  const Clock::duration interval_;
  AwakeClock clock_;
  std::vector<Peer> peers_;
  Clock::time_point next_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_HEARTBEAT_H_
