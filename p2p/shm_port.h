// ShmPort: a mailbox's way to the peers of its host; carries their tokens and notices their deaths.
//
//   RZ_ASSIGN_OR_RETURN(auto wire, ShmWire::Create(self, std::move(endpoint.sockets)));
//   auto mailbox = std::make_shared<Mailbox>(self, workers, on_failure, wire);
//   RZ_ASSIGN_OR_RETURN(auto port, ShmPort::Create({.mailbox = mailbox, .wire = wire, …}));
//
// A mailbox may have several ports, each for some of its peers: this one is for those with a
// socket, and for this worker itself if the mailbox's wire passes its words to itself on to `wire`.
// Numbers of workers are the job's everywhere. Thread-safe.
#ifndef RINGZERO_P2P_SHM_PORT_H_
#define RINGZERO_P2P_SHM_PORT_H_

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/arena_views.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/shm_arena.h"
#include "p2p/shm_packet.h"
#include "p2p/shm_wire.h"

namespace ringzero {

struct ShmPortOptions {
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ShmWire> wire;
  // This worker's, by MemoryUse; the arenas must outlive the port.
  std::array<const ShmArena*, kMemoryUses> arenas = {};
  std::vector<int> slots;             // of each kind, as ResolveSlots returns them
  std::shared_ptr<PulseBoard> board;  // of all workers
  std::chrono::milliseconds peer_timeout;
  std::chrono::milliseconds hello_limit;
};

class ShmPort {
 public:
  // Says hello to all peers. Unavailable when that cannot be written.
  static absl::StatusOr<std::unique_ptr<ShmPort>> Create(const ShmPortOptions& options);
  ~ShmPort() { Stop(); }
  // Writes what can still be written within 1 s and closes all connections; call
  // Mailbox::Shutdown before. Callbacks may come until it returns. Idempotent, by one thread.
  void Stop();

  // Is this a block of a peer's memory as this port maps it? Tokens may name these, and blocks of
  // this worker's own arenas.
  bool HasView(const ArenaCell& cell) const { return views_.Contains(cell); }

 private:
  using Clock = std::chrono::steady_clock;
  using PacketBuffer = std::array<std::byte, sizeof(ShmToken) + kMaxTextBytes>;
  static_assert(sizeof(ShmHello) <= sizeof(PacketBuffer));

  explicit ShmPort(const ShmPortOptions& options);
  void Run();
  std::chrono::milliseconds WaitLimit() const;
  void CheckHellos();
  void CheckPulses();
  void ReadFrom(WorkerId from);
  absl::Status ReceiveHello(WorkerId from);
  absl::Status TakeHello(WorkerId from, const PacketBuffer& buffer, ReceiveResult packet);
  absl::Status TakeToken(WorkerId from, const PacketBuffer& buffer, size_t bytes);
  absl::Status TakeMessage(WorkerId from, const ShmToken& token);

  // The message thread's, but for mailbox_, wire_, views_ and stopping_.
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<ShmWire> wire_;  // shared with the mailbox, which handles keep alive
  const std::array<Arena*, kMemoryUses> arenas_;
  Heartbeat heartbeat_;
  ArenaViews views_;           // of the peers
  std::vector<bool> greeted_;  // by worker: its hello has come, or none is to come
  const Clock::time_point hello_deadline_;
  const std::chrono::milliseconds hello_limit_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_PORT_H_
