// Presence: a worker's signs of life at the store, and what those of the others say: from its first
// moment there until it leaves.
//
//   Presence presence(store, {.self = WorkerId(1), .workers = 4, .number = number});
//   while (…) RZ_RETURN_IF_ERROR(presence.status());   // "worker 2 gave no sign of life for 5.0 s"
//   presence.Leave(absl::OkStatus());                  // its transport watches from now on
//
// A thread of its own writes "alive.<worker>" again and again, and reads those of all others, at
// least ten times in peer_timeout. Why so: docs/decisions/0040-signs-of-life-at-the-store.md.
#ifndef RINGZERO_P2P_RENDEZVOUS_PRESENCE_H_
#define RINGZERO_P2P_RENDEZVOUS_PRESENCE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "p2p/awake_clock.h"
#include "p2p/rendezvous/checked_store.h"

namespace ringzero {

inline constexpr char kAliveKeys[] = "alive.";  // what its keys begin with

struct PresenceOptions {
  WorkerId self{0};
  int workers = 1;
  std::string number;  // random: tells this process from others that are or were this worker
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
};

class Presence {
 public:
  Presence(std::shared_ptr<CheckedStore> store, PresenceOptions options);
  ~Presence();  // gives no sign any more, and no last one

  // All have come, with these numbers, by worker: whoever has another is of another start. Before
  // that, only who gave a sign since this worker came is known to be of this start.
  void Know(std::vector<std::string> numbers);
  // OK while nobody is lost, and after Leave. Else Unavailable: a worker that fell silent, or the
  // store; or the error with which a worker left. Thread-safe.
  absl::Status status() const;
  // The last sign. OK: nobody misses this worker any more. Else the others end with `why`.
  void Leave(const absl::Status& why);
  // After Leave: waits until all that gave signs have left or fallen silent.
  void AwaitOthers(std::chrono::milliseconds limit);
  // It gave signs, and fell silent.
  bool IsSilent(WorkerId worker) const;

 private:
  using Clock = AwakeClock::Clock;
  struct Peer {
    std::string sign;  // the last one
    enum class State { kUnknown, kAlive, kLeft, kSilent } state = State::kUnknown;
    Clock::time_point heard;  // in awake time
  };

  void Run();
  void Stop();
  absl::Status Beat();
  absl::Status Look();
  absl::Status Take(int worker, const std::string& sign);

  const std::shared_ptr<CheckedStore> store_;
  const PresenceOptions options_;
  const Clock::duration interval_;
  AwakeClock clock_;    // the thread's; after it has ended the caller's
  uint64_t beats_ = 0;  // the thread's

  mutable std::mutex mutex_;  // for all that follows
  std::condition_variable stopped_;
  bool stopping_ = false;
  bool looked_ = false;  // what lies there is new since an earlier look
  bool left_ = false;
  absl::Status lost_;
  Clock::time_point now_;             // of the last look, in awake time
  std::vector<std::string> numbers_;  // empty: not known
  std::vector<Peer> peers_;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_PRESENCE_H_
