// UcxPort: a mailbox's words over UCX to some of the workers, and the thread that moves them.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<UcxPort> port, UcxPort::Open({.seat = seat, …}));
//   RZ_RETURN_IF_ERROR(port->Join(arenas));                // blocks until the others are there
//   port->Start(*mailbox);                                 // which outlives Stop
//   RZ_RETURN_IF_ERROR(port->Meet());
//   port->Stop();
//
// docs/p2p.md (Transport ucx) has how a payload travels, and how a peer's death or silence is
// noticed.
//
// Thread-safe, as Wire says; the first three calls are made by one thread.
#ifndef RINGZERO_P2P_UCX_UCX_PORT_H_
#define RINGZERO_P2P_UCX_UCX_PORT_H_

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "p2p/deadline.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/ucx/ucx_links.h"
#include "p2p/ucx/ucx_worker.h"

namespace ringzero {

class UcxPort final : public Wire {
 public:
  // Puts this worker's address into the rendezvous. Does not wait. InvalidArgument for a seat that
  // is none.
  static absl::StatusOr<std::unique_ptr<UcxPort>> Open(UcxPortOptions options);
  UcxPort(UcxPortOptions options, UniqueFd wake);
  ~UcxPort() override { Stop(); }

  // Registers `arenas`, which outlive this, and fetches the others' addresses. Errors of
  // UcxWorker::Register; DeadlineExceeded, naming whom, after seat.join_limit; the error of
  // seat.rendezvous->status(), as from Meet.
  absl::Status Join(const Arenas& arenas);
  // Says hello; a thread of the port's own moves messages from now on, or Poll.
  void Start(Mailbox& mailbox);
  // Blocks until the others have said hello, too, or the error that ended the mailbox: a worker
  // that dies or stops from now on is missed. DeadlineExceeded, naming one, after seat.join_limit.
  // With ProgressMode::kCaller it polls the mailbox meanwhile.
  absl::Status Meet();
  // ProgressMode::kCaller, as Transport::Poll.
  bool Poll();
  // After Mailbox::ShutDown: sends what is left, tells the others, ends. Later words are dropped.
  void Stop();
  // As Transport::LinkTo: "ucx posix/memory cma/memory".
  std::string LinkTo(WorkerId to) const;

  bool SendBlock(WorkerId to, const BlockMessage& message) override;
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override;
  void SendNote(WorkerId to, Note note) override;
  void Wake() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Command {
    enum class Kind { kBlock, kFetch, kNote };
    Kind kind = Kind::kNote;
    WorkerId worker;
    Note note;                  // kNote
    BlockMessage block;         // kBlock, kFetch
    std::span<std::byte> into;  // kFetch
  };

  absl::Status OpenWorker();
  bool MaySendAtOnce(WorkerId to) const;
  void Push(Command command);
  void Rouse();
  bool RunCommands();
  void Run(Command& command);
  bool Move();
  bool Turn();
  void Look();
  void CheckMet();
  void CheckHellos();
  void CheckPulses(Clock::time_point now);
  void CheckSockets(Clock::time_point now);
  void TakeHangUps();
  void RunThread();
  void Sleep();
  void Finish();

  UcxPortOptions options_;  // constant, but that its sockets are closed at the end
  const UniqueFd wake_;
  Mailbox* mailbox_ = nullptr;
  std::vector<std::string> nonces_;  // by worker; until Start

  std::mutex mutex_;  // a leaf: nothing is called with it held
  std::vector<Command> commands_;
  bool open_ = true;
  std::atomic<bool> has_commands_{false};  // changed with mutex_ held; read by the message thread
  std::atomic<bool> sends_wait_{false};    // among commands_; changed with mutex_ held
  std::atomic<bool> asleep_{false};
  std::atomic<bool> callbacks_due_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> met_{false};  // Meet waits on it

  // The message thread's, or Poll's.
  std::vector<Command> running_;
  UcxLinks links_;
  std::unique_ptr<UcxWorker> worker_;  // after links_: it tells them things until its end
  std::shared_ptr<PulseBoard> heard_;  // a board of our own: when messages of each came
  std::optional<Heartbeat> pulses_;    // of those on the host's board
  std::optional<Heartbeat> messages_;  // of the others
  // What the thread sleeps on: wake_, UCX's own descriptor, and each socket; a closed one is -1.
  std::vector<pollfd> events_;
  std::vector<WorkerId> watched_;  // behind the first two of events_
  Clock::time_point sockets_seen_;
  Deadline hello_deadline_;
  bool hellos_missed_ = false;
  uint64_t steps_ = 0;      // turns, and steps of large payloads
  uint64_t next_look_ = 0;  // the step after which Look is due
  int idle_turns_ = 0;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_PORT_H_
