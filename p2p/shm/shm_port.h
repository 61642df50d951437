// ShmPort: a mailbox's way to the peers of its host; reads their words and notices their deaths.
//
//   auto wire = std::make_shared<ShmWire>(endpoint.self, endpoint.Members(), endpoint.rings);
//   auto mailbox = std::make_shared<Mailbox>(self, workers, on_failure, wire);
//   RZ_ASSIGN_OR_RETURN(auto port, ShmPort::Create(std::move(endpoint), {.mailbox = mailbox, …}));
//
// A mailbox may have several ports, each for some of its peers: this one is for those with a
// socket, and for this worker itself if the mailbox's wire passes its words to itself on to `wire`.
// Numbers of workers are the job's everywhere. Words come through rings (docs/p2p.md);
// over the sockets come a hello with descriptors, and the news that a peer is gone. Thread-safe,
// but for Stop and Poll, which one thread calls.
#ifndef RINGZERO_P2P_SHM_SHM_PORT_H_
#define RINGZERO_P2P_SHM_SHM_PORT_H_

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/deadline.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/shm/packet_socket.h"
#include "p2p/shm/shm_arena.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_wire.h"
#include "p2p/shm/socket_watch.h"

namespace ringzero {

struct ShmPortOptions {
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ShmWire> wire;
  // This worker's, by MemoryUse; the arenas must outlive the port.
  std::array<const ShmArena*, kMemoryUses> arenas = {};
  std::chrono::milliseconds peer_timeout;
  ProgressMode progress = ProgressMode::kThread;
};

class ShmPort {
 public:
  // Says hello to all peers. Unavailable when that cannot be written.
  static absl::StatusOr<std::unique_ptr<ShmPort>> Create(ShmEndpoint endpoint,
                                                         const ShmPortOptions& options);
  ~ShmPort() { Stop(); }

  // As Transport::Poll.
  bool Poll();
  // With ProgressMode::kCaller: polls, and sleeps between, while `condition` holds, at most
  // `limit`.
  void PollWhile(const std::function<bool()>& condition, std::chrono::milliseconds limit);
  // Writes what can still be written within 1 s and closes all connections; call
  // Mailbox::Shutdown before. Callbacks may come until it returns. Idempotent.
  void Stop();

  // As Transport::MemoryOf, of a peer.
  MappedMemory MemoryOf(WorkerId peer, MemoryUse use) const { return views_.MemoryOf(peer, use); }

 private:
  using Clock = std::chrono::steady_clock;
  using PacketBuffer = std::array<std::byte, sizeof(ShmHello) + 1>;  // a longer packet is no hello
  // From one worker.
  struct Inlet {
    WorkerId from;
    UniqueFd socket;  // empty: it is this worker itself, or gone
    RingReader ring;
    bool greeted;  // its hello has come, or none is to come
    // A token whose text has not come yet, and what has.
    ShmToken token;
    std::string text;
    bool in_text = false;
  };

  ShmPort(ShmEndpoint endpoint, const ShmPortOptions& options);
  absl::Status SayHello(const ShmPortOptions& options);
  void Run();
  bool Turn();                       // reads what is there; true if there was anything
  void Tick(Clock::time_point now);  // what is due by the clock
  std::chrono::nanoseconds WaitLimit() const;
  bool HasNews() const;
  bool ReadSockets();
  void ReadSocket(Inlet& inlet);
  bool ReadRing(Inlet& inlet, int most);
  void Close(Inlet& inlet);
  void Fail(const Inlet& inlet, const absl::Status& why);
  void CheckHellos();
  absl::Status ReceiveHello(Inlet& inlet);
  // Of all: a word may be about memory of any of them, who has said hello before.
  void ReceiveHellos();
  absl::Status TakeHello(Inlet& inlet, const PacketBuffer& buffer, ReceiveResult packet);
  absl::Status TakeWord(Inlet& inlet, const RingWord& word);
  absl::Status TakeToken(Inlet& inlet);
  absl::Status TakeBlock(WorkerId from, const ShmToken& token);
  absl::Status TakeSmall(WorkerId from, const ShmToken& token, const std::string& payload);
  Inlet* InletOf(WorkerId worker);

  // The message thread's, but for mailbox_, wire_, views_, watch_ and stopping_.
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<ShmWire> wire_;  // shared with the mailbox
  const std::array<Arena*, kMemoryUses> arenas_;
  const ProgressMode progress_;
  Heartbeat heartbeat_;
  ArenaViews views_;           // of the peers
  std::vector<Inlet> inlets_;  // by member
  int ungreeted_ = 0;
  const Deadline hello_deadline_;
  const std::chrono::milliseconds hello_limit_;
  Clock::time_point next_look_;  // kCaller: at the sockets
  uint32_t polls_ = 0;
  bool stopped_ = false;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<SocketWatch> watch_;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_PORT_H_
