// ShmTransport: workers are processes of one host. docs/p2p.md has how messages travel, and how a
// worker's death or stop is noticed.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
//                       CreateShmTransport(std::move(endpoint), options));
//
// All endpoints may also live in one process (tests do that). A transport must be destroyed on
// another thread than its message thread.
//
// ShmPort: a mailbox's way to the peers of its host; reads their words and notices their deaths.
// A mailbox may have several ports, each for some of its peers: this one is for those with a
// socket, and for this worker itself if the mailbox's wire passes its words to itself on to `wire`.
// Numbers of workers are the job's everywhere. Thread-safe, but for Stop and Poll, which one thread
// calls.
#ifndef RINGZERO_P2P_SHM_SHM_TRANSPORT_H_
#define RINGZERO_P2P_SHM_SHM_TRANSPORT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/arena.h"
#include "p2p/deadline.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_wire.h"
#include "p2p/transport.h"

namespace ringzero {

// Does not wait for the others: messages go out once their receiver has said hello. A worker that
// has not done so within hello_limit ends the transport with DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Transport>> CreateShmTransport(ShmEndpoint endpoint,
                                                              const TransportOptions& options);

class SocketWatch;

struct ShmPortParts {
  Mailbox& mailbox;  // outlives the port, as the wire and the arenas
  ShmWire& wire;
  const ShmArenas& arenas;  // this worker's
  const TransportOptions& options;
};

class ShmPort {
 public:
  // Says hello to all peers. Unavailable when that cannot be written.
  static absl::StatusOr<std::unique_ptr<ShmPort>> Create(ShmEndpoint endpoint,
                                                         const ShmPortParts& with);
  ~ShmPort();

  // As Transport::Poll.
  bool Poll();
  // Writes what can still be written within 1 s and closes all connections; call
  // Mailbox::ShutDown before. Callbacks may come until it returns. Idempotent.
  void Stop();

  // As Transport::MemoryOf.
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) const;
  // Whether a block is of a worker's memory that is mapped here.
  bool Maps(std::span<const std::byte> block) const;

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

  ShmPort(ShmEndpoint endpoint, const ShmPortParts& with);
  absl::Status SayHello(const ShmArenas& arenas);
  void Run();
  bool Turn();                       // reads what is there; true if there was anything
  void Tick(Clock::time_point now);  // what is due by the clock
  std::chrono::nanoseconds WaitLimit() const;
  bool HasNews() const;
  void ReadSocket(Inlet& inlet);
  bool ReadRing(Inlet& inlet, int most);
  void Close(Inlet& inlet);
  void Fail(const Inlet& inlet, const absl::Status& why);
  bool AllGreeted() const { return std::ranges::all_of(inlets_, &Inlet::greeted); }
  void CheckHellos();
  absl::Status ReceiveHello(Inlet& inlet);
  // Of all: a word may be about memory of any of them, who has said hello before.
  void ReceiveHellos();
  absl::Status TakeHello(Inlet& inlet, const PacketBuffer& buffer, ReceiveResult packet);
  absl::Status TakeWord(Inlet& inlet, const RingWord& word);
  absl::Status TakeToken(Inlet& inlet);
  absl::Status TakeNote(const Inlet& inlet);
  absl::Status TakeBlock(WorkerId from, const ShmToken& token);
  absl::Status TakeSmall(const Inlet& inlet);

  Mailbox& mailbox_;
  ShmWire& wire_;
  const ProgressMode progress_;
  mutable std::mutex views_mutex_;
  // All arenas of the host's workers, as this process maps them.
  std::map<std::pair<WorkerId, MemoryUse>, MappedMemory> views_;
  // The message thread's, as all below, but for watch_ and stopping_.
  Heartbeat heartbeat_;
  std::vector<Inlet> inlets_;  // by member
  const Deadline hello_deadline_;
  const std::chrono::milliseconds hello_limit_;
  Clock::time_point next_look_;  // kCaller: at the sockets
  uint32_t polls_ = 0;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<SocketWatch> watch_;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_TRANSPORT_H_
